#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

#include "tools/posenc/session.h"

namespace posenc::command {

int Serve(char** argv) {
  std::error_code unknown;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", unknown);
  std::string server = (self.parent_path() / "posenc-server").string();
  argv[0] = server.data();
  execv(server.c_str(), argv);
  std::fprintf(stderr, "posenc: serve: cannot start %s: %s; the package posenc-server has it\n", server.c_str(),
               std::strerror(errno));
  return 1;
}

Subcommand AddServe(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("serve", "Starts the posenc-server beside this program, with the flags given");
  return {app, [](Session&) {
            return UsageError("serve: must be the first argument; its flags are posenc-server's: posenc serve --help");
          }};
}

}  // namespace posenc::command
