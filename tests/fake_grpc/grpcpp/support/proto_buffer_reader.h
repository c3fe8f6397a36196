#pragma once
#include <cstdint>

#include "google/protobuf/io/zero_copy_stream.h"
#include "grpc/byte_buffer.h"
#include "grpc/byte_buffer_reader.h"
#include "posenc/transport/slices.h"
#include "tests/fake_grpc/fake_grpc.h"

namespace grpc {

class ProtoBufferReader : public google::protobuf::io::ZeroCopyInputStream {
 public:
  explicit ProtoBufferReader(const ByteBuffer* buffer) : stream_(buffer->slices()) {
    buffer_.data.raw.slice_buffer.count = buffer->slices().size();
  }
  bool Next(const void** data, int* size) override { return stream_.Next(data, size); }
  void BackUp(int count) override { stream_.BackUp(count); }
  bool Skip(int count) override { return stream_.Skip(count); }
  int64_t ByteCount() const override { return stream_.ByteCount(); }

 protected:
  // This stand-in fills in one field of gRPC's C structures, the number of slices.
  grpc_byte_buffer_reader* reader() { return &reader_; }

 private:
  posenc::transport::SliceStream stream_;
  grpc_byte_buffer buffer_ = {};
  grpc_byte_buffer_reader reader_ = {&buffer_, &buffer_, {}};
};

}  // namespace grpc
