// Command lines of the programs: how CLI11 gets them, and what is said about wrong ones.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "posenc/base/status.h"

namespace posenc {

// Returns argv[1 .. argc) in reverse, the order of CLI::App::parse(std::vector<std::string>). "--flag=" becomes
// "--flag" and "": CLI11 would take the next argument, which may be a flag, for its value.
std::vector<std::string> ReversedArguments(int argc, const char* const* argv);

// A flag that is followed by another flag or by nothing, but needs a value.
struct FlagWithoutValue {
  const CLI::App* command;  // the innermost that was named before the flag
  std::string message;      // "--rate needs a value: RATE", and the flag's help in a second line
};

// Returns the first such flag. CLI11 would take the next flag for the value. `reversed`: as of ReversedArguments().
std::optional<FlagWithoutValue> FindFlagWithoutValue(const CLI::App& root, const std::vector<std::string>& reversed);

// Returns the message of a command line that cannot be parsed, with the nearest flag or command for an unknown word.
std::string ParseErrorMessage(const CLI::App& app, const CLI::ParseError& error);

// Checks of a flag's value. Their errors read "--layout: is bsdh; must be one of bshd, bhsd; did you mean bshd?".
CLI::Validator OneOf(std::vector<std::string> choices);
template <typename Number>
CLI::Validator InRange(Number least, Number most) {
  const auto wrong = [least, most](const std::string& text) -> std::string {
    Number number = 0;
    if (CLI::detail::lexical_cast(text, number) && number >= least && number <= most) return "";
    return fmt::format("is {}; must be from {} to {}", text.empty() ? "\"\"" : Quote(text), least, most);
  };
  return CLI::Validator(wrong, "");
}

// Returns "; did you mean CHOICE?" for the choice that differs from the word by the fewest letters, or "" if none is
// near.
std::string DidYouMean(const std::string& word, const std::vector<std::string>& choices);

}  // namespace posenc
