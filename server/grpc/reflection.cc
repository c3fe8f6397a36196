#include "server/grpc/reflection.h"

#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "grpc/health/v1/health.pb.h"
#include "grpc/reflection/v1/reflection.pb.h"
#include "inference/service.pb.h"
#include "posenc/v1/service.pb.h"
#include "server/calls/messages.h"
#include "xds/service/orca/v3/orca.pb.h"

namespace posenc::server {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;
using ::grpc::reflection::v1::ServerReflectionRequest;
using ::grpc::reflection::v1::ServerReflectionResponse;

constexpr size_t kMaxSymbol = 256;  // bytes; the descriptors have none that is longer

// Adds the file before its imports: some clients take the first one as the one they asked for.
void AddFile(const FileDescriptor& file, std::set<const FileDescriptor*>* added, ServerReflectionResponse* response) {
  if (!added->insert(&file).second) return;
  google::protobuf::FileDescriptorProto message;
  file.CopyTo(&message);
  *response->mutable_file_descriptor_response()->add_file_descriptor_proto() = message.SerializeAsString();
  for (int n = 0; n < file.dependency_count(); ++n) AddFile(*file.dependency(n), added, response);
}

// Returns the response's field with the file and its imports, serialized once: that takes some 0.3 milliseconds. The
// files are those compiled into the server, so that few are kept.
grpc::Slice Files(const FileDescriptor* file) {
  static std::mutex mutex;
  static std::map<const FileDescriptor*, grpc::Slice> kept;
  const std::lock_guard lock(mutex);
  if (const auto found = kept.find(file); found != kept.end()) return found->second;
  std::set<const FileDescriptor*> added;
  ServerReflectionResponse response;
  AddFile(*file, &added, &response);
  return kept.emplace(file, response.SerializeAsString()).first->second;
}

// Returns the name that the question is about; empty if it is about none.
std::string_view NameIn(const ServerReflectionRequest& request) {
  switch (request.message_request_case()) {
    case ServerReflectionRequest::kFileByFilename: return request.file_by_filename();
    case ServerReflectionRequest::kFileContainingSymbol: return request.file_containing_symbol();
    case ServerReflectionRequest::kFileContainingExtension:
      return request.file_containing_extension().containing_type();
    case ServerReflectionRequest::kAllExtensionNumbersOfType: return request.all_extension_numbers_of_type();
    case ServerReflectionRequest::kListServices:
    case ServerReflectionRequest::MESSAGE_REQUEST_NOT_SET: break;
  }
  return {};
}

void SetNotFound(const std::string& what, ServerReflectionResponse* response) {
  response->mutable_error_response()->set_error_code(grpc::NOT_FOUND);
  response->mutable_error_response()->set_error_message("there is no " + what);
}

const FileDescriptor* FileOf(const DescriptorPool& pool, const ::grpc::reflection::v1::ExtensionRequest& request) {
  const auto* type = pool.FindMessageTypeByName(request.containing_type());
  const auto* found = type == nullptr ? nullptr : pool.FindExtensionByNumber(type, request.extension_number());
  return found == nullptr ? nullptr : found->file();
}

void AnswerNumbers(const DescriptorPool& pool, const std::string& name, ServerReflectionResponse* response) {
  const auto* type = pool.FindMessageTypeByName(name);
  if (type == nullptr) return SetNotFound("message " + name, response);
  auto& answer = *response->mutable_all_extension_numbers_response();
  answer.set_base_type_name(name);
  std::vector<const google::protobuf::FieldDescriptor*> found;
  pool.FindAllExtensions(type, &found);
  for (const auto* field : found) answer.add_extension_number(field->number());
}

// Answers from the descriptors that are compiled into the server, on a receiving thread. So no question may take long:
// the pool hashes each part of a name that ends before a dot, which takes milliseconds for a name of 4 KiB.
grpc::ByteBuffer Answer(const ServerReflectionRequest& request) {
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  ServerReflectionResponse response;
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  if (const size_t size = NameIn(request).size(); size > kMaxSymbol) {
    SetNotFound("name of " + std::to_string(size) + " bytes: the longest may have " + std::to_string(kMaxSymbol),
                &response);
    return SerializeMessage(response);
  }
  const FileDescriptor* file = nullptr;
  switch (request.message_request_case()) {
    case ServerReflectionRequest::kFileByFilename:
      file = pool.FindFileByName(request.file_by_filename());
      if (file == nullptr) SetNotFound("file " + request.file_by_filename(), &response);
      break;
    case ServerReflectionRequest::kFileContainingSymbol:
      file = pool.FindFileContainingSymbol(request.file_containing_symbol());
      if (file == nullptr) SetNotFound("symbol " + request.file_containing_symbol(), &response);
      break;
    case ServerReflectionRequest::kFileContainingExtension:
      file = FileOf(pool, request.file_containing_extension());
      if (file == nullptr) SetNotFound("such extension", &response);
      break;
    case ServerReflectionRequest::kAllExtensionNumbersOfType:
      AnswerNumbers(pool, request.all_extension_numbers_of_type(), &response);
      break;
    case ServerReflectionRequest::kListServices:
      for (const FileDescriptor* described :
           {v1::ApplyRotaryRequest::descriptor()->file(), inference::ModelInferRequest::descriptor()->file(),
            ::grpc::health::v1::HealthCheckRequest::descriptor()->file(),
            xds::service::orca::v3::OrcaLoadReportRequest::descriptor()->file(),
            ServerReflectionRequest::descriptor()->file()}) {
        for (int n = 0; n < described->service_count(); ++n) {
          response.mutable_list_services_response()->add_service()->set_name(described->service(n)->full_name());
        }
      }
      break;
    case ServerReflectionRequest::MESSAGE_REQUEST_NOT_SET:
      response.mutable_error_response()->set_error_code(grpc::INVALID_ARGUMENT);
      response.mutable_error_response()->set_error_message("message_request is not set");
      break;
  }
  if (file == nullptr) return SerializeMessage(response);
  // A message's fields may be serialized apart.
  const std::array slices = {grpc::Slice(response.SerializeAsString()), Files(file)};
  return {slices.data(), slices.size()};
}

constexpr size_t kMaxQuestion = 4096;  // bytes
constexpr int64_t kMostStreams = 64;   // open at a time
// Between an answer and the next question of a stream. While questions that gRPC has received already were answered one
// after another, the receiving thread would not look at its connections.
constexpr std::chrono::milliseconds kPause(10);

// Reads one request at a time, writes its response, and pauses. Holds a place among --max-in-flight-requests from the
// arrival of a request until the client has taken the response, so that a drain does not wait for a stream that asks
// nothing. Ends after --max-stream-seconds, and if the client does not send or read in time.
class ReflectionCall final : public Reactor {
 public:
  ReflectionCall(Core* core, Rpc* rpc, FairLimit* open)
      : core_(core), rpc_(rpc), caller_(CallerOf(*rpc)), has_place_(open->Take(caller_.name, 1, &place_)) {}

  void Start() override {
    if (!has_place_) {
      wait_limit_ = CancelAfter(core_->config.send_timeout_s);
      return rpc_->Finish(
          {grpc::UNAVAILABLE, "too many reflection streams: all callers share " + std::to_string(kMostStreams)});
    }
    time_limit_ = core_->timers.At(std::chrono::steady_clock::now() + std::chrono::seconds(core_->config.max_stream_s),
                                   [this] { rpc_->TryCancel(); });
    Read();
  }

  void OnReadDone(bool ok) override {
    wait_limit_.Revoke();
    if (!ok) return rpc_->Finish(grpc::Status::OK);
    const auto verdict = core_->admission->AdmitRequest(kMaxQuestion, &request_charge_, &bytes_charge_, caller_);
    if (verdict != Admission::Verdict::kAdmitted) {
      core_->admission->CountRefusal();
      question_.Clear();  // can be large: not kept while the client is awaited
      return rpc_->Finish({grpc::UNAVAILABLE, "too many requests or bytes in flight, or the server is shutting down"});
    }
    FinishWithoutMemory([this] {
      wait_limit_ = CancelAfter(core_->config.send_timeout_s);
      ServerReflectionRequest request;
      if (ParseMessage(&question_, kMaxQuestion, &request)) return rpc_->Write(Answer(request));
      request_charge_.Return();
      bytes_charge_.Return();
      rpc_->Finish({grpc::INVALID_ARGUMENT,
                    "not a ServerReflectionRequest of at most " + std::to_string(kMaxQuestion) + " bytes"});
    });
  }

  void OnWriteDone(bool ok) override {
    wait_limit_.Revoke();
    request_charge_.Return();
    bytes_charge_.Return();
    if (!ok) return rpc_->Finish({grpc::CANCELLED, "the caller is gone"});
    FinishWithoutMemory([this] {
      const std::lock_guard lock(pause_mutex_);
      pause_ = core_->timers.At(std::chrono::steady_clock::now() + kPause, [this] {
        std::unique_lock(pause_mutex_)
            .unlock();  // pause_ is set now: another thread sets it again after the next answer
        FinishWithoutMemory([this] { Read(); });
      });
    });
  }

 private:
  // Ends the stream if the step, which begins the stream's next operation as its last act, lacks memory.
  template <class Step>
  void FinishWithoutMemory(const Step& step) {
    try {
      step();
    } catch (const std::bad_alloc&) {
      rpc_->Finish({grpc::UNAVAILABLE, "out of memory"});
    }
  }

  void Read() {
    wait_limit_ = CancelAfter(core_->config.receive_timeout_s);
    rpc_->Read(&question_);
  }

  Timers::Timer CancelAfter(int64_t seconds) {
    return core_->timers.After(std::chrono::seconds(seconds), [this] { rpc_->TryCancel(); });
  }

  Core* const core_;
  Rpc* const rpc_;
  const Caller caller_;
  Charge place_, request_charge_, bytes_charge_;
  const bool has_place_;
  grpc::ByteBuffer question_;
  std::mutex pause_mutex_;
  Timers::Timer time_limit_, wait_limit_, pause_;  // declared last: revoked first
};

}  // namespace

void AddReflectionTo(Methods* methods, Core* core) {
  const auto open = FairLimit::Create(kMostStreams);
  for (const char* version : {"v1", "v1alpha"}) {
    Method& method = (*methods)["/grpc.reflection." + std::string(version) + ".ServerReflection/ServerReflectionInfo"];
    method.reads_first = false;
    method.right = Right::kReflection;
    method.make = [core, open](Rpc* rpc, grpc::ByteBuffer*) {
      return std::make_unique<ReflectionCall>(core, rpc, open.get());
    };
  }
}

}  // namespace posenc::server
