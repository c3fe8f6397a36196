#include "server/tile_stream.h"

#include <memory>
#include <utility>

#include "posenc/status.h"
#include "wire/answer.h"

namespace posenc::server {
namespace {

// By which later tiles may exceed the first: row_begin, a varint with its tag, is absent from that.
constexpr size_t kRowBeginBytes = 11;

class TileCall final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  static TileCall* Start(Core* core, const TileMethod& method, grpc::CallbackServerContext* context,
                         const grpc::ByteBuffer* request) {
    auto* stream = new TileCall(core, method, context, request);
    stream->self_.reset(stream);
    absl::Status status = stream->call_.Admit();
    if (status.ok()) status = stream->SubmitTile();
    if (!status.ok()) stream->End(status);
    return stream;
  }

 private:
  friend std::default_delete<TileCall>;

  TileCall(Core* core, const TileMethod& method, grpc::CallbackServerContext* context, const grpc::ByteBuffer* request)
      : core_(core), method_(method), call_(core, method.name, context, request) {}
  ~TileCall() override = default;

  absl::Status SubmitTile() {
    return WithoutExceptions([this] {
      core_->pool.Submit([this] { WriteTile(); });
      return absl::OkStatus();
    });
  }

  void WriteTile() {
    call_.BeginWork();
    const absl::Status status = WithoutExceptions([this] { return ComputeTile(); });
    call_.EndWork();
    if (!status.ok()) return End(status);
    call_.BeginSend();
    StartWrite(&tile_);
    // Another thread may be in OnWriteDone.
  }

  absl::Status ComputeTile() {
    POSENC_RETURN_IF_ERROR(call_.StillWanted());
    const bool first = charge_ == nullptr;
    if (first) {
      const std::unique_ptr<google::protobuf::Message> request(method_.request.New());
      POSENC_ASSIGN_OR_RETURN(const std::string stripped, call_.Strip(method_.stripper));
      POSENC_RETURN_IF_ERROR(call_.Parse(stripped, request.get()));
      POSENC_ASSIGN_OR_RETURN(tiles_, method_.prepare(*request, call_.payloads(), core_->config.limits));
    }
    const std::unique_ptr<google::protobuf::Message> response(method_.response.New());
    const wire::Job job = tiles_.tile(next_row_, response.get());
    POSENC_ASSIGN_OR_RETURN(const wire::Answer layout, wire::Answer::LayOut(response.get(), job.outputs));
    if (first) {
      POSENC_ASSIGN_OR_RETURN(charge_, call_.ChargeAnswer(layout.size() + kRowBeginBytes + tiles_.held_bytes));
    }
    POSENC_RETURN_IF_ERROR(call_.Compute(job, call_.payloads(), layout, charge_, &tile_));
    next_row_ += tiles_.RowsAt(next_row_);
    return absl::OkStatus();
  }

  void OnWriteDone(bool ok) override {
    call_.EndSend();
    tile_.Clear();
    if (!ok) return End(absl::CancelledError("the caller is gone"));
    if (next_row_ >= tiles_.rows) return End(absl::OkStatus());
    if (const absl::Status status = SubmitTile(); !status.ok()) End(status);
  }

  void End(const absl::Status& status) {
    Finish(call_.End(status));
    // The stream may be gone.
  }

  void OnCancel() override { call_.Cancel(); }
  void OnDone() override { self_.reset(); }

  std::unique_ptr<TileCall> self_;
  Core* const core_;
  const TileMethod& method_;
  Call call_;
  wire::TileStream tiles_ = {};
  int64_t next_row_ = 0;
  std::shared_ptr<Charge> charge_;
  grpc::ByteBuffer tile_;  // gRPC's until OnWriteDone
};

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* StartTileStream(Core* core, const TileMethod& method,
                                                            grpc::CallbackServerContext* context,
                                                            const grpc::ByteBuffer* request) {
  return TileCall::Start(core, method, context, request);
}

}  // namespace posenc::server
