// Errors in the words of the command line: flags in place of the API's fields, values as they are typed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "absl/status/status.h"

namespace posenc::command {

// Returns the message of a failed call: its field as the flag of `app` that sets it, followed by the flag's file, and
// the names of fields and enum values as a user types them. A status without details keeps its message.
std::string InWordsOfFlags(const CLI::App& app, const absl::Status& status);

// Returns the message of a command line that cannot be parsed.
std::string InWordsOfFlags(const CLI::App& app, const CLI::ParseError& error);

// A flag that is followed by another flag or by nothing, but needs a value.
struct FlagWithoutValue {
  const CLI::App* command;  // the innermost that was named before the flag
  std::string message;      // "--rate needs a value: RATE", and the flag's help in a second line
};

// Returns the first such flag. CLI11 would take the next flag for the value. `reversed`: as of ReversedArguments().
std::optional<FlagWithoutValue> FindFlagWithoutValue(const CLI::App& root, const std::vector<std::string>& reversed);

// Returns the text with enum values as a user types them: "--precision model" for PRECISION_PRESET_MODEL.
std::string InTypedValues(const std::string& text);

// Returns "; did you mean CHOICE?" for the choice that differs from the word by the fewest letters, or "" if none is
// near.
std::string DidYouMean(const std::string& word, const std::vector<std::string>& choices);

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
