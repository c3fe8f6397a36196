#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "tools/posenc/processes.h"
#include "tools/posenc/session.h"

namespace posenc::command {

int Serve(char** argv) {
  std::string server = ServerProgram();
  argv[0] = server.data();
  execv(server.c_str(), argv);
  std::fprintf(stderr, "posenc: serve: cannot start %s: %s; the package posenc-server has it\n", server.c_str(),
               std::strerror(errno));
  return kFailed;
}

Subcommand AddServe(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("serve", "Starts the posenc-server beside this program, with the flags given");
  return {app, [](Session&) {
            return UsageError("serve: must be the first argument; its flags are posenc-server's: posenc serve --help");
          }};
}

}  // namespace posenc::command
