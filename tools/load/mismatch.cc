#include "tools/load/mismatch.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "posenc/base/status.h"
#include "posenc/v1/service.pb.h"
#include "tools/files/json.h"
#include "tools/files/tensor_header.h"

namespace posenc::load {
namespace {

using google::protobuf::Message;

std::string BytesOf(const grpc::ByteBuffer& buffer) {
  std::string bytes;
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) return bytes;
  for (const grpc::Slice& slice : slices) bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return bytes;
}

// Hexadecimal bits and value of an element, such as "0x3f80 (1)".
std::string ElementName(v1::DataType dtype, std::string_view bytes) {
  std::string reversed(bytes.rbegin(), bytes.rend());  // little-endian
  v1::Tensor element;
  element.set_dtype(dtype);
  element.add_shape(1);
  element.set_data(std::string(bytes));
  const absl::StatusOr<std::string> json = TensorToJson(element);
  std::string number;
  if (json.ok()) {
    const size_t begin = json->rfind('['), end = json->rfind(']');
    if (begin != std::string::npos && end > begin)
      number = absl::StrCat(" (", json->substr(begin + 1, end - begin - 1), ")");
  }
  return absl::StrCat("0x", absl::BytesToHexString(reversed), number);
}

// Compares the parts of an answer with the expected tensors and keeps the first difference.
class Comparison {
 public:
  Comparison(const Work& work, const Message& expected) : work_(work) {
    for (const auto& [name, tensor] : TensorsOf(expected)) tensors_.push_back({name, tensor, {}});
  }

  void Fail(const std::string& tensor, const std::string& expected, const std::string& got) {
    if (!mismatch_) mismatch_ = {work_.entry().name, tensor, 0, expected, got};
  }

  // Compares `bytes` with those of tensor n from byte `begin` on.
  void Compare(size_t n, size_t begin, std::string_view bytes) {
    if (mismatch_) return;
    auto& [name, tensor, seen] = tensors_[n];
    const std::string_view expected = tensor->data();
    if (begin > expected.size() || bytes.size() > expected.size() - begin) {
      return Fail(name, absl::StrCat(expected.size(), " bytes"), absl::StrCat(begin + bytes.size(), " bytes"));
    }
    seen.emplace_back(begin, begin + bytes.size());
    const auto [ours, theirs] =
        std::mismatch(expected.begin() + static_cast<int64_t>(begin),
                      expected.begin() + static_cast<int64_t>(begin + bytes.size()), bytes.begin());
    if (theirs == bytes.end()) return;
    const size_t size = ElementSize(tensor->dtype());
    const auto element = static_cast<size_t>(ours - expected.begin()) / size;
    const size_t at = element * size;
    const bool whole = at >= begin && at + size <= begin + bytes.size();
    mismatch_ = {work_.entry().name, name, static_cast<int64_t>(element),
                 ElementName(tensor->dtype(), expected.substr(at, size)),
                 whole ? ElementName(tensor->dtype(), bytes.substr(at - begin, size)) : "only part of the element"};
  }

  // Compares a tile of rows with tensor n of shape [..., rows, width].
  void CompareTile(size_t n, int64_t row_begin, const v1::Tensor& tile) {
    const v1::Tensor& whole = *tensors_[n].tensor;
    const int rank = whole.shape_size();
    if (tile.dtype() != whole.dtype() || tile.shape_size() != rank || rank < 2 ||
        tile.shape(rank - 1) != whole.shape(rank - 1) || tile.shape(rank - 2) <= 0) {
      return Fail(tensors_[n].name, "a tile of this tensor's type and width", "another");
    }
    const auto rows = static_cast<size_t>(whole.shape(rank - 2)), tile_rows = static_cast<size_t>(tile.shape(rank - 2));
    const size_t row = static_cast<size_t>(whole.shape(rank - 1)) * ElementSize(whole.dtype());
    const std::string_view data = tile.data();
    if (row == 0) return;
    for (size_t begin = 0, outer = 0; begin < data.size(); begin += tile_rows * row, ++outer) {
      Compare(n, (outer * rows + static_cast<size_t>(row_begin)) * row, data.substr(begin, tile_rows * row));
    }
  }

  void CompareWhole(const Message& answer) {
    const auto tensors = TensorsOf(answer);
    for (size_t n = 0; n < tensors_.size(); ++n) {
      const v1::Tensor& expected = *tensors_[n].tensor;
      if (n >= tensors.size() || tensors[n].first != tensors_[n].name)
        return Fail(tensors_[n].name, "a tensor", "none");
      const v1::Tensor& got = *tensors[n].second;
      if (got.dtype() != expected.dtype() ||
          !std::equal(got.shape().begin(), got.shape().end(), expected.shape().begin(), expected.shape().end())) {
        return Fail(tensors_[n].name, "this tensor's type and shape", "another");
      }
      Compare(n, 0, got.data());
    }
  }

  size_t IndexOf(std::string_view name) const {
    for (size_t n = 0; n < tensors_.size(); ++n) {
      if (tensors_[n].name == name) return n;
    }
    return 0;
  }

  // Checks that each byte was seen once. Call it after all pieces.
  std::optional<Mismatch> Result() {
    for (auto& [name, tensor, seen] : tensors_) {
      std::sort(seen.begin(), seen.end());
      size_t end = 0;
      for (const auto& [from, to] : seen) {
        if (from != end) Fail(name, absl::StrCat("byte ", end, " once"), from < end ? "it twice" : "none");
        end = to;
      }
      if (end != tensor->data().size()) {
        Fail(name, absl::StrCat(tensor->data().size(), " bytes"), absl::StrCat(end, " bytes"));
      }
    }
    return mismatch_;
  }

 private:
  struct Tensor {
    std::string name;
    const v1::Tensor* tensor;
    std::vector<std::pair<size_t, size_t>> seen;  // byte ranges [from, to)
  };
  const Work& work_;
  std::vector<Tensor> tensors_;
  std::optional<Mismatch> mismatch_;
};

void ComparePiece(const Message& piece, Comparison* comparison) {
  if (const auto* table = dynamic_cast<const v1::StreamTableResponse*>(&piece)) {
    comparison->CompareTile(comparison->IndexOf("cos"), table->row_begin(), table->cos());
    comparison->CompareTile(comparison->IndexOf("sin"), table->row_begin(), table->sin());
  } else if (const auto* bias = dynamic_cast<const v1::StreamBiasResponse*>(&piece)) {
    comparison->CompareTile(0, bias->row_begin(), bias->bias());
  } else if (const auto* rotary = dynamic_cast<const v1::StreamApplyRotaryResponse*>(&piece)) {
    if (!rotary->has_chunk()) return;
    const v1::RotaryChunk& chunk = rotary->chunk();
    comparison->Compare(comparison->IndexOf(chunk.operand() == v1::OPERAND_KEY ? "k" : "q"),
                        static_cast<size_t>(chunk.rows().byte_offset()), chunk.rows().data());
  } else {
    comparison->CompareWhole(piece);
  }
}

}  // namespace

std::optional<Mismatch> FindMismatch(const Work& work, const Message& expected,
                                     const std::vector<grpc::ByteBuffer>& pieces, absl::Span<const std::byte> shared) {
  Comparison comparison(work, expected);
  if (work.entry().transport == Transport::kSharedMemory) {
    const std::string_view bytes(reinterpret_cast<const char*>(shared.data()), shared.size());
    for (size_t n = 0, at = 0; n < work.answer().size(); ++n) {
      comparison.Compare(n, 0, bytes.substr(at, work.answer()[n].bytes));
      at += Aligned(work.answer()[n].bytes);
    }
    return comparison.Result();
  }
  for (const grpc::ByteBuffer& bytes : pieces) {
    const std::unique_ptr<Message> piece = work.NewResponse();
    if (!piece->ParseFromString(BytesOf(bytes))) {
      comparison.Fail("", std::string(piece->GetDescriptor()->name()), "bytes that do not parse");
      return comparison.Result();
    }
    ComparePiece(*piece, &comparison);
  }
  return comparison.Result();
}

}  // namespace posenc::load
