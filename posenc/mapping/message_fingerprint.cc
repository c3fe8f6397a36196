#include "posenc/mapping/message_fingerprint.h"

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

namespace posenc::wire {
namespace {

class PiecesOfText final : public google::protobuf::io::CopyingOutputStream {
 public:
  explicit PiecesOfText(Fingerprint& fingerprint) : fingerprint_(fingerprint) {}
  bool Write(const void* data, int size) override {
    fingerprint_.AddPiece(data, static_cast<size_t>(size));
    return true;
  }

 private:
  Fingerprint& fingerprint_;
};

}  // namespace

void AddMessage(const google::protobuf::MessageLite& message, Fingerprint& fingerprint) {
  fingerprint.Add(static_cast<int64_t>(message.ByteSizeLong()));
  PiecesOfText pieces(fingerprint);
  google::protobuf::io::CopyingOutputStreamAdaptor stream(&pieces);
  message.SerializeToZeroCopyStream(&stream);
}

}  // namespace posenc::wire
