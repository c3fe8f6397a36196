#include "posenc/command_line/man_page.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "posenc/base/version.h"
#include "posenc/command_line/help_text.h"

namespace posenc {
namespace {

std::string Escaped(const std::string& text) {
  std::string escaped = absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}});
  if (escaped.starts_with(".") || escaped.starts_with("'")) escaped = "\\&" + escaped;
  return absl::StrReplaceAll(escaped, {{"\n.", "\n\\&."}, {"\n'", "\n\\&'"}});
}

}  // namespace

std::string Roff(const ManPage& page) {
  const CLI::App& app = *page.app;
  const std::string description = app.get_description();
  std::string text = absl::StrCat(".TH ", absl::AsciiStrToUpper(page.name), " ", page.section, " \"\" \"posenc ",
                                  kVersion, "\" \"posenc\"\n.SH NAME\n", Escaped(page.name), " \\- ",
                                  Escaped(description.substr(0, description.find('\n'))), "\n.SH SYNOPSIS\n.B ",
                                  Escaped(page.words), "\n");
  for (const CLI::Option* argument : app.get_options([](const CLI::Option* each) { return each->get_positional(); })) {
    const std::string name = Escaped(argument->get_type_name());
    // An argument that a flag can give, too, may be left out.
    text += argument->nonpositional() ? "[\\fI" + name + "\\fR]\n" : ".I " + name + "\n";
  }
  const bool needs_command = app.get_require_subcommand_min() > 0;
  absl::StrAppend(&text,
                  page.commands.empty() ? ""
                  : needs_command       ? ".I COMMAND\n"
                                        : "[\\fICOMMAND\\fR]\n",
                  "[\\fIOPTIONS\\fR]\n.SH DESCRIPTION\n", Escaped(description), "\n");
  if (!page.commands.empty()) text += ".SH COMMANDS\n";
  for (const auto& [name, about] : page.commands) {
    absl::StrAppend(&text, ".TP\n.BR ", Escaped(name), " (1)\n", Escaped(about), "\n");
  }
  text += ".SH OPTIONS\n";
  for (const std::string& group : page.groups) {
    absl::StrAppend(&text, ".SS ", Escaped(group), "\n");
    for (const CLI::Option* option : OptionsOf(app, group)) {
      absl::StrAppend(&text, ".TP\n.B ", Escaped(option->get_name(false, true)));
      const std::string& value = option->get_option_text();  // with a default, or empty
      if (!value.empty()) {
        absl::StrAppend(&text, " ", Escaped(value));
      } else if (option->get_type_size() > 0) {
        absl::StrAppend(&text, " ", Escaped(option->get_type_name()));
      }
      absl::StrAppend(&text, "\n", Escaped(option->get_description()), "\n");
    }
  }
  if (!app.get_footer().empty()) absl::StrAppend(&text, ".SH EXAMPLES\n.nf\n", Escaped(app.get_footer()), "\n.fi\n");
  return text + ".SH SEE ALSO\n.BR posenc (1)\n";
}

}  // namespace posenc
