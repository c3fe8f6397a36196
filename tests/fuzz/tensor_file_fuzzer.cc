// The readers of .npy and .safetensors files. An input is a whole file; its first bytes say which.
#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "posenc/base/status.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/json_mutator.h"
#include "tools/files/file_io.h"
#include "tools/files/npy.h"
#include "tools/files/safetensors.h"
#include "tools/files/tensor_file.h"

namespace posenc {
namespace {

using fuzz::Check;

bool IsNpy(std::string_view file) { return file.starts_with('\x93'); }

// A file that each input overwrites: to make a file for each takes as long as to read it.
class Input {
 public:
  explicit Input(std::string path)
      : path_(std::move(path)), file_(open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)) {}
  const std::string& path() const { return path_; }
  void Write(std::string_view bytes) const {
    Check(ftruncate(file_, 0) == 0 && pwrite(file_, bytes.data(), bytes.size(), 0) == std::ssize(bytes),
          "cannot write the input's file");
  }

 private:
  const std::string path_;
  const int file_;
};

// The tensor's bytes must match its header, and survive being written and read.
void CheckTensor(const v1::Tensor& tensor, const std::string& path) {
  const TensorHeader header{"x", tensor.dtype(), {tensor.shape().begin(), tensor.shape().end()}};
  const auto size = ByteSize(header);
  Check(size.ok() && *size == tensor.data().size(), "a tensor's bytes do not match its header");
  Check(WriteTensors(path, {{"x", &tensor}}).ok(), "a tensor that was read cannot be written");
  const auto again = ReadTensor(path);
  Check(again.ok() && again->SerializeAsString() == tensor.SerializeAsString(), "a written tensor reads differently");
}

void Read(std::string_view bytes) {
  static const std::string kStem = std::filesystem::temp_directory_path() / ("fuzz-" + std::to_string(getpid()));
  static const Input kNpy(kStem + ".npy"), kSafetensors(kStem + ".safetensors");
  const Input& input = IsNpy(bytes) ? kNpy : kSafetensors;
  input.Write(bytes);
  const std::string& path = input.path();
  if (const auto tensor = ReadTensor(path); tensor.ok()) {
    CheckTensor(*tensor, kStem + "-again" + (IsNpy(bytes) ? ".npy" : ".safetensors"));
  } else if (!absl::IsInvalidArgument(tensor.status()) || tensor.status().message().find(path) == std::string::npos) {
    fuzz::Fail("an error without the file's name: " + tensor.status().ToString());
  }
  const auto file = InputFile::Open(path, bytes.size());
  if (!IsNpy(bytes) && file.ok()) {
    if (const auto all = ReadSafetensorsHeader(*file); all.ok()) {
      for (const StoredTensor& stored : *all) {
        Check(stored.begin <= file->size() && stored.size <= file->size() - stored.begin, "a tensor outside its file");
        ReadTensor(path + ":" + stored.header.name).IgnoreError();
      }
    }
  }
}

}  // namespace
}  // namespace posenc

int posenc::fuzz::RunInput(const uint8_t* data, size_t size) {
  posenc::Read({reinterpret_cast<const char*>(data), size});
  return 0;
}

// Half of the changes are of the header's text, with its length corrected.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  posenc::fuzz::Random random(seed);
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  const bool npy = posenc::IsNpy(file);
  const size_t prefix = npy ? 10 : 8, length_at = npy ? 8 : 0;
  if (size < prefix || random.OneIn(2)) return LLVMFuzzerMutate(data, size, max_size);
  const size_t length = std::min<size_t>(data[length_at] | data[length_at + 1] << 8, size - prefix);
  const std::string old(file.substr(prefix, length)), rest(file.substr(prefix + length));
  const std::string header = npy ? random.Text(old) : posenc::fuzz::ChangeJson(old, random);
  if (prefix + header.size() + rest.size() > max_size || header.size() > 0xffff) return size;
  data[length_at] = static_cast<uint8_t>(header.size() & 0xff);
  data[length_at + 1] = static_cast<uint8_t>(header.size() >> 8);
  std::memcpy(data + prefix, header.data(), header.size());
  std::memcpy(data + prefix + header.size(), rest.data(), rest.size());
  return prefix + header.size() + rest.size();
}
