# cmake -C .cmake/fuzz.cmake -S . -B .build/fuzz: libFuzzer targets, built by clang
set(CMAKE_C_COMPILER clang CACHE STRING "")
set(CMAKE_BUILD_TYPE Debug CACHE STRING "")
set(CMAKE_C_FLAGS "-O1 -fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=all" CACHE STRING "")
set(DTP_FUZZ ON CACHE BOOL "")
