// Errors in the words of the command line: flags in place of the API's fields, values as they are typed.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "absl/status/status.h"

namespace posenc::command {

// Returns the message of a failed call: its field as the flag of `app` that sets it, followed by the flag's file, and
// the names of fields and enum values as a user types them. A status without details keeps its message.
std::string InWordsOfFlags(const CLI::App& app, const absl::Status& status);

// Returns the text with enum values as a user types them: "--precision model" for PRECISION_PRESET_MODEL.
std::string InTypedValues(const std::string& text);

// Collects what a command line lacks, so that one error names all of it.
class Missing {
 public:
  void Add(bool missing, const std::string& what) {
    if (missing) what_.push_back(what);
  }
  // Returns a usage error with one line for each thing that is missing.
  absl::Status Get() const;

 private:
  std::vector<std::string> what_;
};

}  // namespace posenc::command
