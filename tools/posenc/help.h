// Help in all its forms, made from one description of the commands: --help, `posenc help`, man pages, completion.
#pragma once

#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "tools/posenc/session.h"

namespace posenc::command {

// Prints the groups of flags in the order in which they were added, but those that replace --model last.
std::shared_ptr<CLI::FormatterBase> HelpFormatter();

// Returns the command's words: "posenc plot decay".
std::string CommandWords(const CLI::App* app);

// Sets the footers: each command's examples, and where the global options are described.
void AddFooters(CLI::App& root);

Subcommand AddHelp(CLI::App& root);
Subcommand AddVersion(CLI::App& root);
Subcommand AddCompletion(CLI::App& root);

// Prints the words that may stand at the cursor, for the scripts of `posenc completion`. The arguments are those of
// bash's `complete -C`: the command, the word and the word before it; the line is in COMP_LINE.
void PrintCandidates(const CLI::App& root, const char* const* argv);

}  // namespace posenc::command
