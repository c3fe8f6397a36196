// The reader of ONNX graphs. An input is a file; "weights.bin" beside it holds external data.
#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "posenc/base/status.h"
#include "posenc/wire/onnx_file.h"
#include "tests/fuzz/check.h"

namespace posenc {
namespace {

using fuzz::Check;

// A folder with the graph, which each input overwrites, and the external data.
class OnnxFolder {
 public:
  OnnxFolder() : folder_(std::filesystem::temp_directory_path() / ("fuzz-onnx-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "weights.bin") << std::string(4096, '\x3f');
    file_ = open(path().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  }
  std::string path() const { return folder_ / "graph.onnx"; }
  void Write(std::string_view bytes) const {
    Check(ftruncate(file_, 0) == 0 && pwrite(file_, bytes.data(), bytes.size(), 0) == std::ssize(bytes),
          "cannot write the input's file");
  }

 private:
  const std::filesystem::path folder_;
  int file_ = -1;
};

// The tables must have the bytes of their shape and type.
void CheckTable(const v1::Tensor& table) {
  const auto width = table.dtype() == v1::DATA_TYPE_FP64 ? 8 : table.dtype() == v1::DATA_TYPE_FP32 ? 4 : 2;
  Check(table.shape_size() == 2 && table.shape(0) > 0 && table.shape(1) > 0, "a table without rows or columns");
  Check(std::ssize(table.data()) == table.shape(0) * table.shape(1) * width, "a table of another size than its shape");
}

void Read(std::string_view bytes) {
  static const OnnxFolder kFolder;
  kFolder.Write(bytes);
  const auto file = ReadOnnxFile(kFolder.path());
  if (!file.ok()) {
    fuzz::CheckError(file.status());
    Check(file.status().message().find(kFolder.path()) != std::string::npos, "an error without the file's name");
    return;
  }
  for (const OnnxRotary& rotary : file->rotary) {
    Check(!rotary.nodes.empty(), "an operator without nodes");
    Check(rotary.settings.has_value() != !rotary.not_stored.empty(), "neither a table nor a reason");
    if (!rotary.settings) continue;
    CheckTable(rotary.settings->given_table().cos());
    CheckTable(rotary.settings->given_table().sin());
  }
}

}  // namespace
}  // namespace posenc

int posenc::fuzz::RunInput(const uint8_t* data, size_t size) {
  posenc::Read({reinterpret_cast<const char*>(data), size});
  return 0;
}
