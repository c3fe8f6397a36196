#include "posenc/mapping/message_fingerprint.h"

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <exception>

#include "posenc/base/interruption.h"

namespace posenc::wire {
namespace {

// Hashes what protobuf serializes. Protobuf ends early if Write returns false; an exception must not pass through it.
class PiecesOfText final : public google::protobuf::io::CopyingOutputStream {
 public:
  explicit PiecesOfText(Fingerprint& fingerprint) : fingerprint_(fingerprint) {}

  bool Write(const void* data, int size) override {
    try {
      InterruptionPoint();
      fingerprint_.AddPiece(data, static_cast<size_t>(size));
    } catch (...) {
      stopped_ = std::current_exception();
    }
    return stopped_ == nullptr;
  }

  // Throws what stopped a Write.
  void Check() const {
    if (stopped_ != nullptr) std::rethrow_exception(stopped_);
  }

 private:
  Fingerprint& fingerprint_;
  std::exception_ptr stopped_;
};

constexpr int kPieceBytes = 16 << 10;

}  // namespace

void AddMessage(const google::protobuf::MessageLite& message, Fingerprint& fingerprint) {
  fingerprint.Add(static_cast<int64_t>(message.ByteSizeLong()));
  PiecesOfText pieces(fingerprint);
  {
    google::protobuf::io::CopyingOutputStreamAdaptor stream(&pieces, kPieceBytes);
    message.SerializeToZeroCopyStream(&stream);
  }
  pieces.Check();
}

}  // namespace posenc::wire
