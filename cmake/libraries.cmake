# Functions that define static libraries of one or more groups, and the compile options that all of them share.

add_library(posenc_options INTERFACE)
target_include_directories(posenc_options INTERFACE ${PROJECT_SOURCE_DIR})
# With contraction into FMA, the bytes of an answer would depend on the processor (docs/accuracy.md).
target_compile_options(posenc_options INTERFACE -ffp-contract=off)
# GCC 12.2's SLP vectorizer drops conditional roundings. At -O2 and above it compiles, for doubles a, b, e, f,
#   if (each) { a = (float)a; b = (float)b; e = (float)e; f = (float)f; } y[0] = (float)(a - b); y[1] = (float)(e + f);
# without its `if`.
target_compile_options(posenc_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-fno-tree-slp-vectorize>)
# GCC 12.2 for Arm with strict aliasing drops one of two braced lists in a file that have the same bytes and different
# types, e.g. {0, 1, 2} and {E::a, E::b, E::c}.
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
  target_compile_options(posenc_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-fno-strict-aliasing>)
endif()
# By default Highway omits targets below the compiler's baseline (on Arm: scalar); POSENC_TARGET and tests need them.
if(POSENC_NATIVE_TARGET)
  target_compile_definitions(posenc_options INTERFACE HWY_COMPILE_ONLY_STATIC)
  target_compile_options(posenc_options INTERFACE -march=native)
else()
  target_compile_definitions(posenc_options INTERFACE HWY_COMPILE_ALL_ATTAINABLE)
  # Highway 1.2 converts infinite float16 wrongly on SSE2. No relevant processor is limited to SSE2.
  if(hwy_VERSION VERSION_GREATER 1.0.3)
    target_compile_definitions(posenc_options INTERFACE HWY_DISABLED_TARGETS=HWY_SSE2)
  endif()
endif()

add_library(posenc_warnings INTERFACE)
target_compile_options(posenc_warnings INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Werror=switch
  -Wno-missing-field-initializers  # designated initialisers set only fields that differ from the default
  $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>  # false positive in GCC 12 for every std::variant with a vector
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>  # false positive in GCC 12 for "text" + std::string (GCC bug 105651)
  # False positive in GCC 12 for Arm if push_back, inlined, fills a vector.
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<STREQUAL:${CMAKE_SYSTEM_PROCESSOR},aarch64>>:-Wno-array-bounds>
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<BOOL:${CMAKE_UNITY_BUILD}>>:-Wno-subobject-linkage>  # unity builds include .cc files
  $<$<BOOL:${POSENC_WARNINGS_AS_ERRORS}>:-Werror>)

# posenc_library(NAME SOURCES DIR... LINK LIB...): a static library of all .cc files in the named directories. Our
# options apply to this build only, not to programs that link to the installed library.
#
# The library is static because its interface uses types of Abseil and Protobuf, which change between their releases: a
# shared library could not keep a stable ABI.
function(posenc_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  set(files)
  foreach(dir ${ARG_SOURCES})
    file(GLOB found CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${dir}/*.cc)
    list(APPEND files ${found})
  endforeach()
  add_library(${name} STATIC ${files})
  target_link_libraries(${name}
    PUBLIC $<BUILD_INTERFACE:posenc_options> ${ARG_LINK} PRIVATE $<BUILD_INTERFACE:posenc_warnings>)
  target_compile_features(${name} PUBLIC cxx_std_20)
endfunction()

# posenc_program(NAME MAIN FILE | SOURCES DIR... LINK LIB...): an executable in bin/.
function(posenc_program name)
  cmake_parse_arguments(ARG "" "MAIN" "SOURCES;LINK" ${ARGN})
  set(files ${ARG_MAIN})
  foreach(dir ${ARG_SOURCES})
    file(GLOB found CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${dir}/*.cc)
    list(APPEND files ${found})
  endforeach()
  set(target ${name}-program)
  add_executable(${target} ${files})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name})
  target_link_libraries(${target} PRIVATE ${ARG_LINK} posenc_warnings)
endfunction()
