#include "posenc/wire/answer.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "posenc/base/memory_account.h"
#include "posenc/base/status.h"

namespace posenc::wire {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// gRPC and protobuf use int sizes; the 64 KiB of slack are for their framing.
constexpr size_t kMaxAnswerBytes = std::numeric_limits<int32_t>::max() - (size_t{64} << 10);

// Bytes of tags and lengths that an output's data and its field get later, at most.
constexpr size_t kFraming = 32;

absl::Status AnswerTooLarge(size_t bytes) {
  return TooLarge("", absl::StrCat(bytes, " bytes"), absl::StrCat("must be at most ", kMaxAnswerBytes, " bytes"));
}

void PutVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

void PutLengthTag(int number, std::string* out) { PutVarint(static_cast<uint64_t>(number) << 3 | 2, out); }

const FieldDescriptor* FieldOf(const Message& response, const v1::Tensor* tensor) {
  std::vector<const FieldDescriptor*> fields;
  response.GetReflection()->ListFields(response, &fields);
  for (const FieldDescriptor* field : fields) {
    const bool singular = field->message_type() == v1::Tensor::descriptor() && !field->is_repeated();
    if (singular && &response.GetReflection()->GetMessage(response, field) == tensor) return field;
  }
  return nullptr;
}

// Serializes the response without its outputs: they are released for the duration of the call, then set again. Returns
// false for more than 2 GiB.
bool SerializeOthers(Message* response, absl::Span<const FieldDescriptor* const> outputs, std::string* others) {
  const Reflection& reflection = *response->GetReflection();
  std::vector<Message*> lent;
  for (const FieldDescriptor* field : outputs) {
    lent.push_back(reflection.UnsafeArenaReleaseMessage(response, field));
  }
  const bool fits = response->SerializeToString(others);
  for (size_t n = 0; n < outputs.size(); ++n) {
    reflection.UnsafeArenaSetAllocatedMessage(response, lent[n], outputs[n]);
  }
  return fits;
}

}  // namespace

absl::StatusOr<Answer> Answer::LayOut(Message* response, absl::Span<const Output> outputs) {
  std::vector<const FieldDescriptor*> fields;
  for (const Output& output : outputs) {
    const FieldDescriptor* field = FieldOf(*response, output.tensor);
    if (field == nullptr) return absl::InternalError("an output that is not a field of the response");
    fields.push_back(field);
  }
  Answer answer;
  std::string header;
  const size_t most = response->ByteSizeLong() + kFraming;
  if (most > kMaxAnswerBytes) return AnswerTooLarge(most);
  {
    const LargeBlocksMayBeRefused scope;
    header.reserve(most);  // plans can be large, and growth would double the header
  }
  if (!SerializeOthers(response, fields, &header)) return AnswerTooLarge(response->ByteSizeLong());
  for (size_t n = 0; n < outputs.size(); ++n) {
    std::string tensor = outputs[n].tensor->SerializeAsString();
    const size_t bytes = outputs[n].region() == nullptr ? outputs[n].bytes : 0;
    if (bytes > kMaxAnswerBytes) return AnswerTooLarge(bytes);
    if (bytes != 0) {
      PutLengthTag(v1::Tensor::kDataFieldNumber, &tensor);
      PutVarint(bytes, &tensor);
    }
    PutLengthTag(fields[n]->number(), &header);
    PutVarint(tensor.size() + bytes, &header);
    header += tensor;
    answer.data_offsets_.push_back(answer.size_ + header.size());
    answer.headers_.push_back({answer.size_, std::exchange(header, {})});
    answer.size_ = answer.data_offsets_.back() + bytes;
  }
  if (outputs.empty()) {
    answer.size_ = header.size();
    answer.headers_.push_back({0, std::move(header)});
  }
  POSENC_RETURN_IF_ERROR(answer.Complete());
  return answer;
}

absl::StatusOr<Answer> Answer::OfPieces(std::vector<Piece> pieces, absl::Span<const Output> outputs) {
  constexpr size_t kNowhere = std::numeric_limits<size_t>::max();
  Answer answer;
  answer.data_offsets_.assign(outputs.size(), kNowhere);
  for (Piece& piece : pieces) {
    const size_t begin = answer.size_;
    answer.size_ += piece.header.size();
    answer.headers_.push_back({begin, std::move(piece.header)});
    if (piece.output == nullptr) continue;
    answer.data_offsets_[piece.output - outputs.data()] = answer.size_;
    if (piece.output->region() == nullptr) answer.size_ += piece.output->bytes;
  }
  POSENC_RETURN_IF_ERROR(answer.Complete());
  for (size_t n = 0; n < outputs.size(); ++n) {
    if (answer.data_offsets_[n] != kNowhere) continue;
    answer.data_offsets_[n] = answer.buffer_size_;
    answer.buffer_size_ += outputs[n].bytes;
  }
  return answer;
}

Answer Answer::Behind(std::string bytes) const {
  Answer longer = *this;
  for (Header& header : longer.headers_) header.offset += bytes.size();
  for (size_t& offset : longer.data_offsets_) offset += bytes.size();
  longer.size_ += bytes.size();
  longer.buffer_size_ += bytes.size();
  longer.headers_.push_back({0, std::move(bytes)});
  return longer;
}

absl::Status Answer::Complete() {
  buffer_size_ = size_;
  return size_ > kMaxAnswerBytes ? AnswerTooLarge(size_) : absl::OkStatus();
}

Answer Answer::OfChunk(const v1::RotaryChunk& chunk, size_t bytes) {
  v1::TensorChunk place;  // excludes the chunk's data, which may be a ticket (walker.h)
  place.set_byte_offset(chunk.rows().byte_offset());
  std::string rows = place.SerializeAsString();
  PutLengthTag(v1::TensorChunk::kDataFieldNumber, &rows);
  PutVarint(bytes, &rows);
  v1::RotaryChunk others;
  others.set_operand(chunk.operand());
  std::string message = others.SerializeAsString();
  PutLengthTag(v1::RotaryChunk::kRowsFieldNumber, &message);
  PutVarint(rows.size() + bytes, &message);
  message += rows;
  std::string header;
  PutLengthTag(v1::StreamApplyRotaryResponse::kChunkFieldNumber, &header);
  PutVarint(message.size() + bytes, &header);
  header += message;
  Answer answer;
  answer.data_offsets_ = {header.size()};
  answer.size_ = answer.buffer_size_ = header.size() + bytes;
  answer.headers_.push_back({0, std::move(header)});
  return answer;
}

void Answer::WriteHeaders(std::byte* buffer) const {
  for (const Header& header : headers_) std::memcpy(buffer + header.offset, header.bytes.data(), header.bytes.size());
}

}  // namespace posenc::wire
