# Embeds text files into a program. include() defines posenc_embed; run as a script, this file writes the source file.

# posenc_embed(TARGET HEADER HEADER NAMESPACE NAME FILES FILE...): defines in TARGET the constants that HEADER declares:
# for each file, e.g. report.css, a std::string_view kReportCss.
function(posenc_embed target)
  cmake_parse_arguments(ARG "" "HEADER;NAMESPACE" "FILES" ${ARGN})
  cmake_path(GET ARG_HEADER STEM name)
  set(source ${CMAKE_BINARY_DIR}/embedded/${target}_${name}.cc)
  add_custom_command(OUTPUT ${source}
    COMMAND ${CMAKE_COMMAND} "-DSOURCE=${source}" "-DHEADER=${ARG_HEADER}" "-DNAMESPACE=${ARG_NAMESPACE}"
      "-DFILES=${ARG_FILES}" -P ${CMAKE_CURRENT_FUNCTION_LIST_FILE}
    DEPENDS ${ARG_FILES} ${CMAKE_CURRENT_FUNCTION_LIST_FILE} VERBATIM)
  target_sources(${target} PRIVATE ${source})
endfunction()

if(NOT CMAKE_SCRIPT_MODE_FILE)
  return()
endif()
set(text "#include \"${HEADER}\"\n\nnamespace ${NAMESPACE} {\n")
foreach(file ${FILES})
  file(READ ${file} content)
  # The constant's name, e.g. kReportMinJs for report.min.js.
  cmake_path(GET file FILENAME name)
  string(REGEX MATCHALL "[A-Za-z0-9]+" words "${name}")
  set(constant k)
  foreach(word ${words})
    string(SUBSTRING ${word} 0 1 first)
    string(SUBSTRING ${word} 1 -1 rest)
    string(TOUPPER ${first} first)
    string(APPEND constant ${first}${rest})
  endforeach()
  string(APPEND text "const std::string_view ${constant} = R\"embedded(${content})embedded\";\n")
endforeach()
file(WRITE ${SOURCE} "${text}}  // namespace ${NAMESPACE}\n")
