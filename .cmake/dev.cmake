# cmake -C .cmake/dev.cmake -S . -B .build/dev: for daily work, warnings are errors
set(CMAKE_BUILD_TYPE Debug CACHE STRING "")
set(CMAKE_C_FLAGS "-Og" CACHE STRING "")
set(DTP_WERROR ON CACHE BOOL "")
