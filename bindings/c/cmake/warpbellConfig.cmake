# CMake package of warpbell: find_package(warpbell CONFIG).
#
# Targets:
#   warpbell::warpbell  shared library, warpbell.h, warpbell.hpp
#   warpbell::static    static library with all that it needs, and the same headers
#   warpbell::device    headers for kernels alone; nothing is linked, and no relocatable device code is needed
#
# Function: warpbell_add_image (warpbellAddImage.cmake).
#
# The package is found below the prefix that it was installed to, wherever that is now: all paths are relative to this file.

cmake_minimum_required(VERSION 3.18)

get_filename_component(_warpbell_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(warpbell_INCLUDE_DIR "${_warpbell_prefix}/include")

set(_warpbell_folders lib lib64)
if(CMAKE_LIBRARY_ARCHITECTURE)
  list(INSERT _warpbell_folders 0 "lib/${CMAKE_LIBRARY_ARCHITECTURE}")
endif()
# Not of the cache: another prefix may be chosen later.
unset(_warpbell_shared CACHE)
unset(_warpbell_archive CACHE)
find_library(_warpbell_shared NAMES libwarpbell.so PATHS "${_warpbell_prefix}" PATH_SUFFIXES ${_warpbell_folders} NO_DEFAULT_PATH)
find_library(_warpbell_archive NAMES libwarpbell.a PATHS "${_warpbell_prefix}" PATH_SUFFIXES ${_warpbell_folders} NO_DEFAULT_PATH)
mark_as_advanced(_warpbell_shared _warpbell_archive)

if(NOT EXISTS "${warpbell_INCLUDE_DIR}/warpbell.h")
  set(warpbell_FOUND FALSE)
  set(warpbell_NOT_FOUND_MESSAGE "${warpbell_INCLUDE_DIR} has no warpbell.h: install again with cargo cinstall -p warpbell-c --prefix=${_warpbell_prefix}")
  return()
endif()
if(NOT _warpbell_shared AND NOT _warpbell_archive)
  set(warpbell_FOUND FALSE)
  set(warpbell_NOT_FOUND_MESSAGE "neither libwarpbell.so nor libwarpbell.a is in ${_warpbell_folders} of ${_warpbell_prefix}: install again with cargo cinstall -p warpbell-c --prefix=${_warpbell_prefix} --libdir=lib")
  return()
endif()

include(CMakeFindDependencyMacro)
find_dependency(Threads)

if(NOT TARGET warpbell::device)
  add_library(warpbell::device INTERFACE IMPORTED)
  set_target_properties(warpbell::device PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${warpbell_INCLUDE_DIR}")
endif()
if(_warpbell_shared AND NOT TARGET warpbell::warpbell)
  add_library(warpbell::warpbell SHARED IMPORTED)
  set_target_properties(warpbell::warpbell PROPERTIES
    IMPORTED_LOCATION "${_warpbell_shared}"
    INTERFACE_INCLUDE_DIRECTORIES "${warpbell_INCLUDE_DIR}")
endif()
if(_warpbell_archive AND NOT TARGET warpbell::static)
  # As Libs.private of warpbell.pc: kernels for CPU threads are C++, the rest is Rust.
  add_library(warpbell::static STATIC IMPORTED)
  set_target_properties(warpbell::static PROPERTIES
    IMPORTED_LOCATION "${_warpbell_archive}"
    IMPORTED_LINK_INTERFACE_LANGUAGES CXX
    INTERFACE_LINK_LIBRARIES "Threads::Threads;${CMAKE_DL_LIBS};rt;m"
    INTERFACE_INCLUDE_DIRECTORIES "${warpbell_INCLUDE_DIR}")
endif()

include("${CMAKE_CURRENT_LIST_DIR}/warpbellAddImage.cmake")
