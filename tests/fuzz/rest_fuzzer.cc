// Requests of the Open Inference Protocol over HTTP, from the first line on. An input is "VERB TARGET LENGTH\n" and the
// body; LENGTH is the Inference-Header-Content-Length, or "-". The server is that of inference_server.h.
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "nlohmann/json.hpp"
#include "server/rest/rest_service.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/inference_server.h"
#include "tests/fuzz/json_mutator.h"

namespace posenc::server {

namespace {

using fuzz::Check;
using nlohmann::json;

// Waits for the answer of one request.
class Exchange final : public HttpExchange {
 public:
  Exchange(HttpRequest request, SharedBytes body) : request_(std::move(request)), body_(std::move(body)) {}
  const HttpRequest& request() const override { return request_; }
  const SharedBytes& body() const override { return body_; }
  bool is_gone() const override { return false; }
  void Post(std::function<void()> step) override { step(); }
  void Answer(HttpAnswer answer, std::function<void()> sent) override {
    if (sent) sent();
    const std::lock_guard lock(mutex_);
    Check(!answer_, "two answers");
    answer_ = std::move(answer);
    answered_.notify_all();
  }
  void Close() override {}

  HttpAnswer Wait() {
    std::unique_lock lock(mutex_);
    answered_.wait(lock, [this] { return answer_.has_value(); });
    return *std::move(answer_);
  }

 private:
  const HttpRequest request_;
  const SharedBytes body_;
  std::mutex mutex_;
  std::condition_variable answered_;
  std::optional<HttpAnswer> answer_;
};

class Server : public InferenceServer {
 public:
  // The verb, the target and the header's value are of the input's first line.
  HttpAnswer Ask(std::string_view input) {
    Reset();
    const std::string_view line = input.substr(0, input.find('\n'));
    const std::string_view body = input.substr(std::min(line.size() + 1, input.size()));
    HttpRequest request;
    const size_t verb = std::min(line.find(' '), line.size()), length = line.rfind(' ');
    request.verb = line.substr(0, verb);
    if (length != std::string_view::npos && length > verb) {
      request.target = line.substr(verb + 1, length - verb - 1);
      const std::string_view value = line.substr(length + 1);
      if (value != "-") request.fields.insert("Inference-Header-Content-Length", {value.data(), value.size()});
    }
    request.peer = &peer_;
    auto begun = handler_(request);
    if (auto* answer = std::get_if<HttpAnswer>(&begun)) return std::move(*answer);
    auto kept = std::make_shared<std::string>(body);
    const absl::Span<const std::byte> bytes(reinterpret_cast<const std::byte*>(kept->data()), kept->size());
    const auto exchange = std::make_shared<Exchange>(std::move(request), SharedBytes{bytes, kept});
    std::get<HttpContinuation>(begun)(exchange);
    HttpAnswer answer = exchange->Wait();
    if (line.find("repository") != std::string_view::npos && answer.status != 404) RestoreModels();
    return answer;
  }

 private:
  const HttpPeer peer_{.name = "unix:", .names = {}};
  const HttpHandler handler_ = MakeRestHandler(&core(), methods(), nullptr);
};

void CheckAnswer(const HttpAnswer& answer) {
  size_t more = 0;
  for (const SharedBytes& piece : answer.more) more += piece.bytes.size();
  if (answer.body.empty()) return Check(answer.status == 200 && more == 0, "an answer without a body");
  const json body = json::parse(answer.body, nullptr, /*allow_exceptions=*/false);
  Check(!body.is_discarded(), "an answer that is no JSON");
  if (answer.status != 200) {
    static constexpr int kStatuses[] = {400, 404, 405, 409, 413, 500, 501, 503, 504};
    const bool not_ready = answer.status == 503 && body.contains("ready");
    Check(std::ranges::find(kStatuses, answer.status) != std::end(kStatuses), "a status that callers do not get");
    Check(not_ready || body.at("error").get<std::string>().size() > 3, "an error without a text");
    // INTERNAL is Triton's code for what cannot be opened or loaded, which has a field.
    return Check(answer.status != 500 || body.contains("field"), "an internal error");
  }
  size_t binary = 0;
  if (body.is_object() && body.contains("outputs") && body.contains("model_version")) {
    for (const json& output : body["outputs"]) {
      if (output.contains("parameters")) binary += output["parameters"]["binary_data_size"].get<size_t>();
    }
  }
  Check(binary == more, "other bytes behind the JSON than it says");
}

}  // namespace
}  // namespace posenc::server

int posenc::fuzz::RunInput(const uint8_t* data, size_t size) {
  using namespace posenc::server;
  static Server server;  // destroyed at the end: it has a name in the system
  CheckAnswer(server.Ask({reinterpret_cast<const char*>(data), size}));
  return 0;
}

// Changes the JSON of the body or, one in four times, any bytes. Where the line gives the length of the JSON, it
// follows.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  posenc::fuzz::Random random(seed);
  const std::string input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\n'), space = input.rfind(' ', end);
  if (random.OneIn(4) || end == std::string::npos || space == std::string::npos) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
  const std::string value = input.substr(space + 1, end - space - 1);
  const bool has_length =
      !value.empty() && value.size() < 8 && value.find_first_not_of("0123456789") == std::string::npos;
  const size_t length = std::min(has_length ? std::stoul(value) : size, size - end - 1);
  const std::string changed = posenc::fuzz::ChangeJson(std::string_view(input).substr(end + 1, length), random);
  const std::string made = input.substr(0, space + 1) + (has_length ? std::to_string(changed.size()) : value) + "\n" +
                           changed + input.substr(end + 1 + length);
  if (made.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, made.data(), made.size());
  return made.size();
}
