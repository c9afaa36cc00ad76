# cmake -C .cmake/tsan.cmake -S . -B .build/tsan: thread sanitizer
set(CMAKE_BUILD_TYPE Debug CACHE STRING "")
set(CMAKE_C_FLAGS "-O1 -fsanitize=thread -fno-omit-frame-pointer" CACHE STRING "")
