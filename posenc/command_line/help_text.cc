#include "posenc/command_line/help_text.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace posenc {
namespace {

constexpr size_t kWidth = 80;
constexpr size_t kDescription = 30;  // the column of descriptions

// Appends the text, whose first line begins at `column`; further lines begin at `indent`.
void AppendWrapped(std::string_view text, size_t column, size_t indent, std::string* out) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    size_t end = line.size();
    if (column + end > kWidth) {
      end = line.rfind(' ', kWidth - column);
      if (end == line.npos) end = std::min(line.find(' '), line.size());
    }
    out->append(line.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!text.empty()) out->append("\n").append(indent, ' ');
    column = indent;
  }
  *out += '\n';
}

std::string Entry(std::string left, const std::string& description) {
  left = "  " + left;
  if (description.empty()) return left + "\n";
  if (left.size() >= kDescription) {
    left += "\n" + std::string(kDescription, ' ');
  } else {
    left.resize(kDescription, ' ');
  }
  AppendWrapped(description, kDescription, kDescription, &left);
  return left;
}

// CLI11's name of the group of options and commands that have none: in newer releases upper case.
std::string Title(const std::string& group) {
  for (const char* title : {"Options", "Subcommands"}) {
    if (CLI::detail::to_lower(group) == CLI::detail::to_lower(title)) return title;
  }
  return group;
}

// Wraps each line; its rest begins below its first word.
std::string Lines(std::string_view text) {
  std::string lines;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    AppendWrapped(line, 0, std::min(line.find_first_not_of(' '), line.size()), &lines);
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return lines;
}

}  // namespace

std::vector<std::string> GroupsOf(const CLI::App& app) {
  std::vector<std::string> groups;
  for (const std::string& given : app.get_groups()) {
    const std::string group = Title(given);
    const bool is_new = std::find(groups.begin(), groups.end(), group) == groups.end();
    if (is_new && !OptionsOf(app, group).empty()) groups.push_back(group);
  }
  return groups;
}

std::vector<const CLI::Option*> OptionsOf(const CLI::App& app, const std::string& group) {
  return app.get_options([&group](const CLI::Option* option) {
    return Title(option->get_group()) == group && option->nonpositional() && !group.empty();
  });
}

std::string WrappingFormatter::make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const {
  std::string text = make_description(app) + make_usage(app, std::move(name)) + make_positionals(app);
  for (const std::string& group : GroupsOf(*app)) text += make_group(group, false, OptionsOf(*app, group));
  return text + make_subcommands(app, mode) + "\n" + Lines(app->get_footer());
}

std::string WrappingFormatter::make_description(const CLI::App* app) const { return Lines(app->get_description()); }

std::string WrappingFormatter::make_usage(const CLI::App* app, std::string name) const {
  std::string text = "Usage: " + name;
  const auto flags = app->get_options([](const CLI::Option* option) { return option->nonpositional(); });
  if (!flags.empty()) text += " [OPTIONS]";
  for (const CLI::Option* option : app->get_options([](const CLI::Option* o) { return o->get_positional(); })) {
    text += " " + make_option_usage(option);
  }
  if (!app->get_subcommands([](const CLI::App* command) { return !command->get_name().empty(); }).empty()) {
    text += app->get_require_subcommand_min() == 0 ? " [SUBCOMMAND]" : " SUBCOMMAND";
  }
  return Lines(text);
}

std::string WrappingFormatter::make_positionals(const CLI::App* app) const {
  const auto options = app->get_options(
      [](const CLI::Option* option) { return !option->get_group().empty() && option->get_positional(); });
  return options.empty() ? "" : make_group("Positionals", true, options);
}

std::string WrappingFormatter::make_group(std::string group, bool is_positional,
                                          std::vector<const CLI::Option*> options) const {
  std::string text = "\n" + group + ":\n";
  for (const CLI::Option* option : options) {
    text += Entry(make_option_name(option, is_positional) + make_option_opts(option), make_option_desc(option));
  }
  return text;
}

std::string WrappingFormatter::make_subcommands(const CLI::App* app, CLI::AppFormatMode /*mode*/) const {
  std::string text, last;
  for (const CLI::App* command : app->get_subcommands({})) {
    const std::string group = Title(command->get_group());
    if (group.empty()) continue;
    if (group != last) text += "\n" + group + ":\n";
    last = group;
    text += Entry(command->get_name(), command->get_description());
  }
  return text;
}

}  // namespace posenc
