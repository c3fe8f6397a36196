#include "tools/posenc/help.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "posenc/base/status.h"
#include "posenc/base/version.h"
#include "posenc/command_line/arguments.h"
#include "posenc/command_line/help_text.h"
#include "posenc/command_line/man_page.h"
#include "tools/files/file_io.h"
#include "tools/posenc/examples.h"
#include "tools/posenc/messages.h"

namespace posenc::command {
namespace {

std::vector<const CLI::App*> Commands(const CLI::App& app) {
  std::vector<const CLI::App*> commands = app.get_subcommands([](const CLI::App*) { return true; });
  std::erase_if(commands, [](const CLI::App* command) { return command->get_group().empty(); });
  return commands;
}

// Returns the groups of flags, the common ones first.
std::vector<std::string> Groups(const CLI::App& app) {
  std::vector<std::string> groups = GroupsOf(app);
  std::stable_partition(groups.begin(), groups.end(), [](const std::string& group) {
    return group.find("in place of --model") == std::string::npos;
  });
  return groups;
}

class OrderedFormatter : public WrappingFormatter {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    std::string text = make_description(app) + make_usage(app, std::move(name)) + make_positionals(app);
    for (const std::string& group : Groups(*app)) text += make_group(group, false, OptionsOf(*app, group));
    return text + make_subcommands(app, mode) + "\n" + app->get_footer() + "\n";  // the examples' lines stay whole
  }

 protected:
  // Leaves out CLI11's lists of flags that an option needs or excludes. The flags' descriptions and groups say it.
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string text = CLI::Formatter::make_option_opts(option);
    return absl::StrReplaceAll(text.substr(0, std::min(text.find(" Needs: "), text.find(" Excludes: "))),
                               {{",... ...", ",..."}});
  }
};

std::string ManName(const CLI::App* app) { return absl::StrReplaceAll(CommandWords(app), {{" ", "-"}}); }

std::string ManPageOf(const CLI::App& app) {
  ManPage page{.app = &app, .name = ManName(&app), .words = CommandWords(&app), .groups = Groups(app)};
  for (const CLI::App* command : Commands(app)) {
    const std::string about = command->get_description();
    page.commands.emplace_back(ManName(command), about.substr(0, about.find('\n')));
  }
  return Roff(page);
}

absl::Status WriteManPages(const CLI::App& app, const std::string& folder) {
  POSENC_RETURN_IF_ERROR(WriteWholeFile(absl::StrCat(folder, "/", ManName(&app), ".1"), ManPageOf(app)));
  for (const CLI::App* command : Commands(app)) POSENC_RETURN_IF_ERROR(WriteManPages(*command, folder));
  return absl::OkStatus();
}

// Prints the text, with --json as an object's field.
void PrintText(const Session& session, const char* name, const std::string& text) {
  const std::string json = nlohmann::json{{name, text}}.dump() + "\n";
  std::fputs((session.json() ? json : text).c_str(), stdout);
}

// True if the text has the word, in upper or lower case, with no letter or digit beside it.
bool HasWord(const std::string& text, const std::string& word) {
  const std::string in = absl::AsciiStrToLower(text), what = absl::AsciiStrToLower(word);
  for (size_t at = in.find(what); at != in.npos && !what.empty(); at = in.find(what, at + 1)) {
    const size_t end = at + what.size();
    if ((at == 0 || !absl::ascii_isalnum(in[at - 1])) && (end == in.size() || !absl::ascii_isalnum(in[end])))
      return true;
  }
  return false;
}

// Returns "; see `posenc help bias`" for the commands whose help has the word, such as a method's name.
std::string CommandsWithWord(const CLI::App& app, const std::string& word) {
  std::vector<std::string> found;
  for (const CLI::App* command : Commands(app)) {
    const std::string words = CommandWords(command);
    if (!HasWord(HelpFormatter()->make_help(command, words, CLI::AppFormatMode::Normal), word)) continue;
    found.push_back(absl::StrCat("`posenc help ", command->get_name(), "`"));
  }
  return found.empty() ? "" : absl::StrCat("; see ", absl::StrJoin(found, ", "));
}

absl::StatusOr<const CLI::App*> FindCommand(const CLI::App* app, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    const std::vector<const CLI::App*> commands = Commands(*app);
    const auto found = std::find_if(commands.begin(), commands.end(),
                                    [&word](const CLI::App* each) { return each->get_name() == word; });
    if (found == commands.end()) {
      std::vector<std::string> names;
      for (const CLI::App* command : commands) names.push_back(command->get_name());
      const std::string elsewhere = app->get_parent() == nullptr ? CommandsWithWord(*app, word) : "";
      return UsageError(
          absl::StrCat("unknown command ", Quote(word), elsewhere.empty() ? DidYouMean(word, names) : elsewhere));
    }
    app = *found;
  }
  return app;
}

// Returns the words that may stand where the cursor is. Empty: the name of a file, which the shell completes.
std::vector<std::string> Candidates(const CLI::App* app, const std::string& line, std::string word,
                                    std::string before) {
  // Of "--flag=value", zsh and fish complete the whole word, bash completes the value.
  std::string prefix;
  const std::string last = line.substr(line.rfind(' ') + 1);
  if (const size_t equals = last.find('='); last.starts_with("--") && equals != std::string::npos) {
    prefix = word.starts_with("--") ? last.substr(0, equals + 1) : "";
    before = last.substr(0, equals);
    word = last.substr(equals + 1);
  }
  std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
  if (!line.ends_with(' ') && !words.empty()) words.pop_back();
  const bool help = words.size() > 1 && words[1] == "help";
  for (const std::string& each : words) {
    for (const CLI::App* command : Commands(*app)) {
      if (command->get_name() == each && each != "help") app = command;
    }
  }
  std::vector<std::string> choices;
  const CLI::Option* flag = nullptr;
  for (const CLI::App* level = app; level != nullptr && flag == nullptr; level = level->get_parent()) {
    flag = before.starts_with("-") ? level->get_option_no_throw(before) : nullptr;
  }
  if (word.starts_with("-")) {
    for (const CLI::App* level = app; level != nullptr; level = level->get_parent()) {
      for (const CLI::Option* option : level->get_options()) {
        for (const std::string& name : option->get_lnames()) choices.push_back("--" + name);
      }
    }
  } else if (flag != nullptr && flag->get_type_size() > 0) {
    const std::string type = flag->get_type_name();
    if (type.find('|') != std::string::npos && type.find("FILE") == std::string::npos) {
      choices = absl::StrSplit(type, '|');
    }
  } else if (help || !Commands(*app).empty()) {
    for (const CLI::App* command : Commands(*app)) choices.push_back(command->get_name());
  } else if (app->get_name() == "completion") {
    choices = {"bash", "zsh", "fish"};
  }
  std::erase_if(choices, [&word](const std::string& choice) { return !choice.starts_with(word); });
  for (std::string& choice : choices) choice.insert(0, prefix);
  return choices;
}

constexpr std::pair<const char*, const char*> kScripts[] = {
    {"bash", "complete -o default -o bashdefault -C 'posenc complete-word' posenc\n"},
    {"zsh", R"sh(#compdef posenc
_posenc() {
  local -a found
  found=(${(f)"$(COMP_LINE="${words[1,CURRENT]}" posenc complete-word posenc "$PREFIX" "${words[CURRENT-1]}")"})
  if (( $#found )); then compadd -a found; else _files; fi
}
if [ "$funcstack[1]" = _posenc ]; then _posenc "$@"; else compdef _posenc posenc; fi
)sh"},
    {"fish",
     "complete -c posenc -a '(COMP_LINE=(commandline -cp) posenc complete-word posenc (commandline -ct) "
     "(commandline -cpo)[-1])'\n"}};

}  // namespace

std::string CommandWords(const CLI::App* app) {
  std::string words = app->get_name();
  while ((app = app->get_parent()) != nullptr) words = app->get_name() + " " + words;
  return words;
}

std::shared_ptr<CLI::FormatterBase> HelpFormatter() { return std::make_shared<OrderedFormatter>(); }

void AddFooters(CLI::App& root) {
  root.footer(ExamplesOf("posenc"));
  const auto add = [](CLI::App* app, const auto& self) -> void {
    for (CLI::App* command : app->get_subcommands([](CLI::App*) { return true; })) {
      command->fallthrough()->footer(
          ExamplesOf(CommandWords(command)) +
          "\nGlobal options, described in `posenc help`: --server, --tls..., --token-file, --timeout, --json, --yes.");
      self(command, self);
    }
  };
  add(&root, add);
}

Subcommand AddHelp(CLI::App& root) {
  CLI::App* app = root.add_subcommand("help", "Prints the help of posenc or of one of its commands");
  const auto words = std::make_shared<std::vector<std::string>>();
  const auto folder = std::make_shared<std::string>();
  app->add_option("command", *words, "The command, such as rope, or plot decay")->type_name("COMMAND");
  app->add_option("--man-pages", *folder, "Write a man page of each command to this folder instead")
      ->type_name("FOLDER");
  return {app, [&root, words, folder](Session& session) -> absl::Status {
            if (!folder->empty()) return WriteManPages(root, *folder);
            POSENC_ASSIGN_OR_RETURN(const CLI::App* found, FindCommand(&root, *words));
            PrintText(session, "help",
                      HelpFormatter()->make_help(found, CommandWords(found), CLI::AppFormatMode::Normal));
            return absl::OkStatus();
          }};
}

Subcommand AddVersion(CLI::App& root) {
  CLI::App* app = root.add_subcommand("version", "Prints the version of this program");
  return {app, [](Session& session) {
            PrintText(session, "version", session.json() ? kVersion : absl::StrCat("posenc ", kVersion, "\n"));
            return absl::OkStatus();
          }};
}

Subcommand AddCompletion(CLI::App& root) {
  CLI::App* app = root.add_subcommand("completion", "Prints a script that completes posenc's commands in a shell");
  const auto shell = std::make_shared<std::string>();
  app->add_option("shell", *shell, "The shell: bash, zsh or fish")->type_name("SHELL");
  return {app, [shell](Session& session) -> absl::Status {
            for (const auto& [name, script] : kScripts) {
              if (*shell != name) continue;
              PrintText(session, "completion", script);
              return absl::OkStatus();
            }
            if (shell->empty()) return UsageError("missing: the shell: bash, zsh or fish");
            return UsageError(absl::StrCat("unknown shell ", Quote(*shell), "; must be bash, zsh or fish"));
          }};
}

void PrintCandidates(const CLI::App& root, const char* const* argv) {
  std::vector<std::string> words;
  for (; *argv != nullptr; ++argv) words.emplace_back(*argv);
  words.resize(3);
  const char* line = std::getenv("COMP_LINE");
  for (const std::string& word : Candidates(&root, line == nullptr ? "" : line, words[1], words[2])) {
    std::printf("%s\n", word.c_str());
  }
}

}  // namespace posenc::command
