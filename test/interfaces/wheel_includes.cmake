# SPDX-License-Identifier: Apache-2.0
# Given as CMAKE_PROJECT_INCLUDE. The ROS 2 wheels export targets with include directories of the machine that built
# them (/opt/python/...); CMake refuses a target whose include directory does not exist, so these are taken out.
function(drop_foreign_includes)
  get_property(targets DIRECTORY PROPERTY IMPORTED_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(includes ${target} INTERFACE_INCLUDE_DIRECTORIES)
    if(includes)
      list(FILTER includes EXCLUDE REGEX "^/opt/python/")
      set_property(TARGET ${target} PROPERTY INTERFACE_INCLUDE_DIRECTORIES "${includes}")
    endif()
  endforeach()
endfunction()
cmake_language(DEFER CALL drop_foreign_includes)
