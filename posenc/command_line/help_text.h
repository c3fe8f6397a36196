// Help for a terminal of 80 columns, the same with every release of CLI11, whose own layout changes.
#pragma once

#include <string>
#include <vector>

#include "CLI/CLI.hpp"

namespace posenc {

// Returns the groups that have flags, in order.
std::vector<std::string> GroupsOf(const CLI::App& app);
// Returns the flags of a group, positional arguments excluded.
std::vector<const CLI::Option*> OptionsOf(const CLI::App& app, const std::string& group);

// Lines are broken between words; a word that is longer than a line stays whole. The rest of a flag's description goes
// below its beginning.
class WrappingFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;

 protected:
  std::string make_description(const CLI::App* app) const override;
  std::string make_usage(const CLI::App* app, std::string name) const override;
  std::string make_positionals(const CLI::App* app) const override;
  std::string make_group(std::string group, bool is_positional, std::vector<const CLI::Option*> options) const override;
  std::string make_subcommands(const CLI::App* app, CLI::AppFormatMode mode) const override;
};

}  // namespace posenc
