// The RPCs. Handlers only start a call; gRPC's threads do no work.
#pragma once

#include "posenc/v1/service.grpc.pb.h"
#include "server/call.h"
#include "server/server_devices.h"
#include "server/shared_memory/registry.h"
#include "server/tile_stream.h"
#include "server/unary_call.h"

namespace posenc::server {

// gRPC's generated classes hand over raw bytes for the methods that they are chained for; all of them are.
using RawService = v1::PositionalEncodingService::WithRawCallbackMethod_GetServerInfo<
    v1::PositionalEncodingService::WithRawCallbackMethod_Explain<
        v1::PositionalEncodingService::WithRawCallbackMethod_Analyze<
            v1::PositionalEncodingService::WithRawCallbackMethod_ApplyRotary<
                v1::PositionalEncodingService::WithRawCallbackMethod_GenerateTable<
                    v1::PositionalEncodingService::WithRawCallbackMethod_StreamTable<
                        v1::PositionalEncodingService::WithRawCallbackMethod_GenerateEmbedding<
                            v1::PositionalEncodingService::WithRawCallbackMethod_GenerateBias<
                                v1::PositionalEncodingService::WithRawCallbackMethod_AddBias<
                                    v1::PositionalEncodingService::WithRawCallbackMethod_RelativeScores<
                                        v1::PositionalEncodingService::WithRawCallbackMethod_RelativeValues<
                                            v1::PositionalEncodingService::WithRawCallbackMethod_StreamApplyRotary<
                                                v1::PositionalEncodingService::WithRawCallbackMethod_StreamBias<
                                                    v1::PositionalEncodingService::WithRawCallbackMethod_Diagnose<
                                                        v1::PositionalEncodingService::
                                                            WithRawCallbackMethod_DiagnoseBias<
                                                                v1::PositionalEncodingService::Service>>>>>>>>>>>>>>>;

class Service final : public RawService {
 public:
  // `memory`: null where shared memory is off.
  Service(Core* core, const SharedMemoryRegistry* memory, const ServerDevices* devices);

  using Context = grpc::CallbackServerContext;
  using Bytes = grpc::ByteBuffer;
  using Reactor = grpc::ServerUnaryReactor;

  Reactor* GetServerInfo(Context* context, const Bytes* request, Bytes* response) override;
  Reactor* Explain(Context* context, const Bytes* request, Bytes* response) override;
  Reactor* Analyze(Context* context, const Bytes* request, Bytes* response) override;
  Reactor* ApplyRotary(Context* context, const Bytes* request, Bytes* response) override;
  grpc::ServerBidiReactor<Bytes, Bytes>* StreamApplyRotary(Context* context) override;
  Reactor* GenerateTable(Context* context, const Bytes* request, Bytes* response) override;
  grpc::ServerWriteReactor<Bytes>* StreamTable(Context* context, const Bytes* request) override;
  Reactor* GenerateEmbedding(Context* context, const Bytes* request, Bytes* response) override;
  Reactor* GenerateBias(Context* context, const Bytes* request, Bytes* response) override;
  grpc::ServerWriteReactor<Bytes>* StreamBias(Context* context, const Bytes* request) override;
  Reactor* AddBias(Context* context, const Bytes* request, Bytes* response) override;
  Reactor* RelativeScores(Context* context, const Bytes* request, Bytes* response) override;
  Reactor* RelativeValues(Context* context, const Bytes* request, Bytes* response) override;
  Reactor* Diagnose(Context* context, const Bytes* request, Bytes* response) override;
  Reactor* DiagnoseBias(Context* context, const Bytes* request, Bytes* response) override;

 private:
  Core* const core_;
  const UnaryMethod get_server_info_;
  const UnaryMethod explain_;
  const UnaryMethod analyze_;
  const UnaryMethod apply_rotary_;
  const wire::Stripper stream_apply_rotary_;
  const UnaryMethod generate_table_;
  const TileMethod stream_table_;
  const UnaryMethod generate_embedding_;
  const UnaryMethod generate_bias_;
  const TileMethod stream_bias_;
  const UnaryMethod add_bias_;
  const UnaryMethod relative_scores_;
  const UnaryMethod relative_values_;
  const UnaryMethod diagnose_;
  const UnaryMethod diagnose_bias_;
};

}  // namespace posenc::server
