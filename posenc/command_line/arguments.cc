#include "posenc/command_line/arguments.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace posenc {
namespace {

// Flags that once had another name, and the name that they have now.
constexpr std::pair<const char*, const char*> kFormerNames[] = {{"--form", "--alibi-form"}};

// Returns the number of letters to insert, remove, replace or swap that turn one word into the other.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> cells(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t k = 0; k <= b.size(); ++k) {
      if (i == 0 || k == 0) {
        cells[i][k] = i + k;
        continue;
      }
      cells[i][k] = std::min({cells[i - 1][k] + 1, cells[i][k - 1] + 1, cells[i - 1][k - 1] + (a[i - 1] != b[k - 1])});
      if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1]) {
        cells[i][k] = std::min(cells[i][k], cells[i - 2][k - 2] + 1);
      }
    }
  }
  return cells[a.size()][b.size()];
}

// Returns all flags that the command takes, its own first.
std::vector<std::string> Flags(const CLI::App* app) {
  std::vector<std::string> flags;
  for (; app != nullptr; app = app->get_parent()) {
    for (const CLI::Option* option : app->get_options()) {
      for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
    }
  }
  return flags;
}

// Returns the flag of the command, or of those above it, that the word is; null if it is none.
const CLI::Option* FlagOf(const CLI::App* app, const std::string& word) {
  const CLI::Option* flag = nullptr;
  if (!word.starts_with("-") || word.size() == 1) return flag;
  for (; app != nullptr && flag == nullptr; app = app->get_parent()) flag = app->get_option_no_throw(word);
  return flag;
}

// Returns the message about a word that the command does not know.
std::string Unknown(const CLI::App& app, const std::string& word) {
  if (word.starts_with("-") && word.size() > 1) {
    const std::string flag = word.substr(0, word.find('='));
    const std::vector<std::string> flags = Flags(&app);
    for (const auto& [old_name, name] : kFormerNames) {
      if (flag == old_name && std::find(flags.begin(), flags.end(), name) != flags.end()) {
        return absl::StrCat("unknown flag ", flag, "; did you mean ", name, "?");
      }
    }
    return absl::StrCat("unknown flag ", Quote(flag), DidYouMean(flag, flags));
  }
  std::vector<std::string> commands;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    commands.push_back(command->get_name());
  }
  const std::string kind = commands.empty() ? "unexpected argument " : "unknown command ";
  return absl::StrCat(kind, Quote(word), DidYouMean(word, commands));
}

}  // namespace

std::vector<std::string> ReversedArguments(int argc, const char* const* argv) {
  std::vector<std::string> arguments;
  for (int n = argc - 1; n > 0; --n) {
    std::string argument = argv[n];
    if (argument.starts_with("--") && argument.find('=') == argument.size() - 1) {
      arguments.emplace_back();
      argument.pop_back();
    }
    arguments.push_back(std::move(argument));
  }
  return arguments;
}

std::string ParseErrorMessage(const CLI::App& app, const CLI::ParseError& error) {
  // An unknown word may be the reason for another error, so report it first.
  for (const CLI::App* level = &app; level != nullptr; level = level->get_parent()) {
    const std::vector<std::string> unknown = level->remaining();
    if (!unknown.empty()) return Unknown(app, unknown.front());
  }
  const std::string message = error.what();
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
    if (app.get_require_subcommand_min() > 0) {
      return "missing: " + absl::StrJoin(commands, " or ", [](std::string* text, const CLI::App* command) {
               absl::StrAppend(text, command->get_name());
             });
    }
    return "missing: " + message.substr(0, message.find(" is required"));
  }
  // "Could not convert: --batch = x"
  const std::vector<std::string> parts = absl::StrSplit(message, absl::MaxSplits(absl::ByAnyChar(":="), 2));
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr && parts.size() == 3) {
    const std::string name(absl::StripAsciiWhitespace(parts[1]));
    const CLI::Option* option = FlagOf(&app, name);
    return absl::StrCat(name, ": is", Quote(parts[2]), "; must be ",
                        option == nullptr ? "a number" : option->get_type_name());
  }
  return message;
}

std::optional<FlagWithoutValue> FindFlagWithoutValue(const CLI::App& root, const std::vector<std::string>& reversed) {
  const CLI::App* command = &root;
  for (auto word = reversed.rbegin(); word != reversed.rend() && *word != "--"; ++word) {
    const auto named = command->get_subcommands([&](const CLI::App* each) { return each->get_name() == *word; });
    if (!named.empty()) command = named[0];
    const CLI::Option* flag = FlagOf(command, *word);
    if (flag == nullptr || flag->get_items_expected_min() == 0) continue;
    const std::string& typed = *word;
    if (++word != reversed.rend() && FlagOf(command, word->substr(0, word->find('='))) == nullptr) continue;
    return FlagWithoutValue{
        command, absl::StrCat(typed, " needs a value: ", flag->get_type_name(), "\n  ", flag->get_description())};
  }
  return std::nullopt;
}

CLI::Validator OneOf(std::vector<std::string> choices) {
  const auto wrong = [choices = std::move(choices)](const std::string& text) -> std::string {
    if (std::find(choices.begin(), choices.end(), text) != choices.end()) return "";
    return absl::StrCat("is ", text.empty() ? "\"\"" : Quote(text), "; must be one of ", absl::StrJoin(choices, ", "),
                        DidYouMean(text, choices));
  };
  return CLI::Validator(wrong, "");
}

std::string DidYouMean(const std::string& word, const std::vector<std::string>& choices) {
  const std::string* nearest = nullptr;
  size_t least = 0;
  for (const std::string& choice : choices) {
    // A third of the letters may differ. A prefix of a choice is near, too: "--scaling" of "--scaling-length".
    const size_t letters = choice.size() - std::min(choice.find_first_not_of('-'), choice.size());
    const size_t most = std::max<size_t>(1, letters / 3);
    const bool is_prefix = choice.starts_with(word) && word.size() > 2;
    const size_t least_distance = std::max(word.size(), choice.size()) - std::min(word.size(), choice.size());
    if (!is_prefix && least_distance > most) continue;
    const size_t distance = is_prefix ? 1 : Distance(word, choice);
    if (distance > most || distance >= letters) continue;
    if (nearest != nullptr && distance >= least) continue;
    nearest = &choice;
    least = distance;
  }
  return nearest == nullptr ? "" : absl::StrCat("; did you mean ", *nearest, "?");
}

}  // namespace posenc
