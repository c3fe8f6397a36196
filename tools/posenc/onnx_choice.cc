// The operators of an ONNX graph that an argument chooses.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "posenc/base/status.h"
#include "tools/posenc/onnx.h"

namespace posenc::command {
namespace {

// True if the operators differ in their heads only, as those for q and k do.
bool RotateAlike(const OnnxRotary& a, const OnnxRotary& b) {
  if (!a.settings || !b.settings || a.rotation.domain != b.rotation.domain ||
      a.rotation.op_type != b.rotation.op_type) {
    return false;
  }
  const v1::GivenTable &table_a = a.settings->given_table(), &table_b = b.settings->given_table();
  return a.rotation.interleaved == b.rotation.interleaved && a.rotation.rotary_offset == b.rotation.rotary_offset &&
         table_a.cos().dtype() == table_b.cos().dtype() &&
         std::ranges::equal(table_a.cos().shape(), table_b.cos().shape()) &&
         table_a.cos().data() == table_b.cos().data() && table_a.sin().data() == table_b.sin().data();
}

}  // namespace

absl::StatusOr<OnnxFile> ReadRotaryOnnx(const std::string& path) {
  auto file = ReadOnnxFile(path);
  if (!file.ok() || !file->rotary.empty()) return file;
  const std::string unread =
      file->unread.empty() ? "" : fmt::format("; not read are: {}", fmt::join(file->unread, "; "));
  return absl::InvalidArgumentError(fmt::format(
      "{}: has no operator that rotates by a table: RotaryEmbedding, or GroupQueryAttention, SparseAttention or "
      "PagedAttention with do_rotary 1{}",
      path, unread));
}

absl::StatusOr<std::vector<OnnxRotary>> ChooseOnnx(const OnnxFile& file, const std::string& path,
                                                   const std::string& node) {
  std::vector<OnnxRotary> chosen;
  for (const OnnxRotary& rotary : file.rotary) {
    const bool has_node = std::find(rotary.nodes.begin(), rotary.nodes.end(), node) != rotary.nodes.end();
    if (!node.empty() && !has_node) continue;
    const auto alike = std::find_if(chosen.begin(), chosen.end(),
                                    [&rotary](const OnnxRotary& other) { return RotateAlike(rotary, other); });
    if (alike == chosen.end()) {
      chosen.push_back(rotary);
    } else {
      alike->nodes.insert(alike->nodes.end(), rotary.nodes.begin(), rotary.nodes.end());
    }
  }
  if (!chosen.empty()) return chosen;
  return UsageError(fmt::format("{}: no operator that rotates is the node {}; posenc explain lists them", path, node));
}

absl::StatusOr<v1::RotarySettings> RotaryOfOnnx(const std::string& path, const std::string& node) {
  POSENC_ASSIGN_OR_RETURN(const OnnxFile file, ReadRotaryOnnx(path));
  POSENC_ASSIGN_OR_RETURN(const std::vector<OnnxRotary> chosen, ChooseOnnx(file, path, node));
  if (chosen.size() > 1) {
    std::vector<std::string> names;
    for (const OnnxRotary& rotary : chosen) names.push_back(rotary.nodes[0]);
    return UsageError(fmt::format("{}: has {} different rotary embeddings; give --component with a node of one: {}",
                                  path, chosen.size(), fmt::join(names, ", ")));
  }
  if (!chosen[0].settings) return absl::InvalidArgumentError(fmt::format("{}: {}", path, chosen[0].not_stored));
  return *chosen[0].settings;
}

}  // namespace posenc::command
