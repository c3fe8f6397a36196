#include "bench/wire/peers.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <vector>

#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"
#include "posenc/in_process/in_process.h"
#include "posenc/v1/service.grpc.pb.h"
#include "server/calls/answer_buffer.h"
#include "server/core/buffer_pool.h"
#include "server/core/signals.h"

namespace posenc::bench {
namespace {

using v1::PositionalEncodingService;

class Echo final
    : public PositionalEncodingService::WithRawCallbackMethod_ApplyRotary<PositionalEncodingService::Service> {
  grpc::ServerUnaryReactor* ApplyRotary(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override {
    *response = *request;
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

class Copy final
    : public PositionalEncodingService::WithRawCallbackMethod_ApplyRotary<PositionalEncodingService::Service> {
  grpc::ServerUnaryReactor* ApplyRotary(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override {
    server::AnswerBuffer answer(request->Length(), 0, pool_, nullptr);
    std::vector<grpc::Slice> slices;
    (void)request->Dump(&slices);
    std::byte* out = answer.data();
    for (const grpc::Slice& slice : slices) {
      std::memcpy(out, slice.begin(), slice.size());
      out += slice.size();
    }
    *response = std::move(answer).Release(request->Length());
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  const std::shared_ptr<server::BufferPool> pool_ = std::make_shared<server::BufferPool>(size_t{1} << 30);
};

class Typed final
    : public PositionalEncodingService::WithCallbackMethod_ApplyRotary<PositionalEncodingService::Service> {
  grpc::ServerUnaryReactor* ApplyRotary(grpc::CallbackServerContext* context, const v1::ApplyRotaryRequest* request,
                                        v1::ApplyRotaryResponse* response) override {
    auto* reactor = context->DefaultReactor();
    auto answer = engine_.ApplyRotary(*request);
    if (answer.ok()) {
      *response = *std::move(answer);
      reactor->Finish(grpc::Status::OK);
    } else {
      reactor->Finish({grpc::INTERNAL, std::string(answer.status().message())});
    }
    return reactor;
  }

  InProcess engine_;
};

std::shared_ptr<grpc::ServerCredentials> CredentialsOf(const Listening& listening) {
  if (listening.certificate.empty()) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions options;
  options.pem_key_cert_pairs = {{ReadFile(listening.key), ReadFile(listening.certificate)}};
  return grpc::SslServerCredentials(options);
}

}  // namespace

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool Serve(const std::string& kind, const Listening& listening) {
  std::unique_ptr<grpc::Service> service;
  if (kind == "echo") service = std::make_unique<Echo>();
  if (kind == "copy") service = std::make_unique<Copy>();
  if (kind == "typed") service = std::make_unique<Typed>();
  if (service == nullptr) return false;
  server::KeepFreedMemory(int64_t{256} << 20);  // same malloc tuning as posenc-server
  int port = 0;
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(-1);
  builder.SetMaxSendMessageSize(-1);
  builder.AddListeningPort("127.0.0.1:0", CredentialsOf(listening), &port);
  if (!listening.unix_socket.empty()) {
    builder.AddListeningPort("unix:" + listening.unix_socket, grpc::InsecureServerCredentials());
  }
  builder.RegisterService(service.get());
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return false;
  const std::string fresh = listening.port_file + ".new";
  std::ofstream(fresh) << port << '\n';
  if (std::rename(fresh.c_str(), listening.port_file.c_str()) != 0) return false;
  server->Wait();
  return true;
}

}  // namespace posenc::bench
