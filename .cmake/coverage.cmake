# cmake -C .cmake/coverage.cmake -S . -B .build/coverage: line coverage, read by gcovr
set(CMAKE_BUILD_TYPE Debug CACHE STRING "")
set(CMAKE_C_FLAGS "-O0 --coverage -DDTP_COVERAGE" CACHE STRING "")
