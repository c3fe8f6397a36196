// The flags of posenc-server. An input is its arguments, one a line.
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "server/core/config.h"
#include "tests/fuzz/check.h"

namespace posenc::server {
namespace {

using fuzz::Check;

constexpr Machine kMachine = {.cpus = 2, .memory_bytes = int64_t{1} << 30};

ParsedArguments Parse(const std::vector<std::string>& arguments) {
  std::vector<const char*> argv = {"posenc-server"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  static auto* const parser = new ArgumentParser;  // takes longer to build than to use
  return parser->Parse(static_cast<int>(argv.size()), argv.data(), kMachine);
}

// The settings that a server logs are those of its flags: as flags they give the same settings.
void CheckSettings(const Config& config) {
  std::vector<std::string> arguments;
  for (const auto& [flag, value] : Describe(config)) arguments.push_back("--" + flag + "=" + value);
  const ParsedArguments again = Parse(arguments);
  if (!again.config) fuzz::Fail("settings that cannot be given as flags: " + again.text);
  const auto settings = Describe(config), settings_again = Describe(*again.config);
  for (size_t n = 0; n < settings.size(); ++n) {
    const auto& [flag, value] = settings[n];
    if (value == settings_again[n].second) continue;
    fuzz::Fail(flag + " is " + value + ", but given as a flag " + settings_again[n].second);
  }
}

}  // namespace
}  // namespace posenc::server

int posenc::fuzz::RunInput(const uint8_t* data, size_t size) {
  using namespace posenc::server;
  const std::string text(data, data + size);
  if (text.find('\0') != std::string::npos) return -1;  // an argument cannot have it
  const ParsedArguments parsed = Parse(absl::StrSplit(text, '\n', absl::SkipEmpty()));
  if (parsed.config) {
    CheckSettings(*parsed.config);
    return 0;
  }
  Check(!parsed.text.empty(), "neither settings nor a text");
  // The help's text takes ten times as long as other answers, and is always the same.
  return parsed.exit_status == 0 ? -1 : 0;
}
