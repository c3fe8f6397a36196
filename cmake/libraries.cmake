# Helpers: one static library a group or a few, one set of compile options for all.

add_library(posenc_options INTERFACE)
target_include_directories(posenc_options INTERFACE ${PROJECT_SOURCE_DIR})
# Contraction into FMA would change the bytes of an answer from one processor to the next (docs/accuracy.md).
target_compile_options(posenc_options INTERFACE -ffp-contract=off)
# GCC 12.2's vectorizer of straight-line code drops conditional roundings: of doubles a, b, e, f,
#   if (each) { a = (float)a; b = (float)b; e = (float)e; f = (float)f; } y[0] = (float)(a - b); y[1] = (float)(e + f);
# is compiled without its `if` at -O2 and above.
target_compile_options(posenc_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-fno-tree-slp-vectorize>)
# GCC 12.2 for Arm leaves out one of two braced lists in a file whose bytes are the same and whose types are not, as
# {0, 1, 2} and {E::a, E::b, E::c}, where it relies on types to tell memory apart.
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
  target_compile_options(posenc_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-fno-strict-aliasing>)
endif()
# Highway leaves out the targets below the compiler's baseline (on Arm: scalar); POSENC_TARGET and the tests want them.
if(POSENC_NATIVE_TARGET)
  target_compile_definitions(posenc_options INTERFACE HWY_COMPILE_ONLY_STATIC)
  target_compile_options(posenc_options INTERFACE -march=native)
else()
  target_compile_definitions(posenc_options INTERFACE HWY_COMPILE_ALL_ATTAINABLE)
  # Highway 1.2 converts infinite float16 wrongly on SSE2, to which no processor of use is limited.
  if(hwy_VERSION VERSION_GREATER 1.0.3)
    target_compile_definitions(posenc_options INTERFACE HWY_DISABLED_TARGETS=HWY_SSE2)
  endif()
endif()

add_library(posenc_warnings INTERFACE)
target_compile_options(posenc_warnings INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Werror=switch
  -Wno-missing-field-initializers  # designated initialisers name what differs from the default
  $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>  # false for every std::variant with a vector in GCC 12
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>  # false in GCC 12 for "text" + std::string (GCC's bug 105651)
  # False in GCC 12 for Arm where a vector is filled by push_back and inlined.
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<STREQUAL:${CMAKE_SYSTEM_PROCESSOR},aarch64>>:-Wno-array-bounds>
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<BOOL:${CMAKE_UNITY_BUILD}>>:-Wno-subobject-linkage>  # files of one unit are no headers
  $<$<BOOL:${POSENC_WARNINGS_AS_ERRORS}>:-Werror>)

# posenc_library(NAME SOURCES DIR... LINK LIB...): a static library of all .cc files in the named directories. Our options
# are for what is built here and do not follow the library to those who install it.
#
# Static, not shared: the interface is made of Abseil's and Protobuf's types, which change with their releases, so that a
# shared library could not promise that yesterday's program still fits it.
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
