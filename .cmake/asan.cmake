# cmake -C .cmake/asan.cmake -S . -B .build/asan: address and undefined-behaviour sanitizers
set(CMAKE_BUILD_TYPE Debug CACHE STRING "")
set(CMAKE_C_FLAGS "-O1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer" CACHE STRING "")
