#pragma once
#include <string>

#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "tests/fake_grpc/fake_grpc.h"

namespace grpc {

class ProtoBufferReader : public google::protobuf::io::ArrayInputStream {
 public:
  explicit ProtoBufferReader(const ByteBuffer* buffer) : ProtoBufferReader(new std::string(BytesOf(*buffer))) {}

 private:
  explicit ProtoBufferReader(std::string* bytes)
      : ArrayInputStream(bytes->data(), static_cast<int>(bytes->size())), bytes_(bytes) {}

  const std::unique_ptr<std::string> bytes_;
};

}  // namespace grpc
