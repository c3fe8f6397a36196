#include "server/http/connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

#include "boost/asio/basic_waitable_timer.hpp"
#include "boost/asio/buffer.hpp"
#include "boost/asio/dispatch.hpp"
#include "boost/asio/error.hpp"
#include "boost/asio/post.hpp"
#include "boost/asio/ssl/stream.hpp"
#include "boost/asio/write.hpp"
#include "boost/beast/core/flat_buffer.hpp"
#include "boost/beast/core/string.hpp"
#include "boost/beast/http/buffer_body.hpp"
#include "boost/beast/http/error.hpp"
#include "boost/beast/http/parser.hpp"
#include "boost/beast/http/read.hpp"
#include "server/access/proxy_headers.h"
#include "server/core/log.h"
#include "server/http/exchange.h"
#include "server/http/tls_context.h"
#include "server/listen/peer.h"

namespace posenc::server {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using std::chrono::steady_clock;

constexpr size_t kPiece = size_t{1} << 20;     // of a body, charged at a time
constexpr size_t kChunk = size_t{16} << 10;    // of a chunked body, parsed at a time
constexpr size_t kLookAhead = 1024;            // bytes of the next request that are read while one is answered
constexpr std::chrono::seconds kLastReads{2};  // in which a client may still send, so that it reads the last answer

// Handlers that this thread runs, one within another.
thread_local int running = 0;

// All steps run on the stream's executor, one at a time.
template <class Stream>
class Connection final : public HttpConnection, public std::enable_shared_from_this<Connection<Stream>> {
 public:
  static constexpr bool kIsTls = !std::is_same_v<Stream, Socket>;

  Connection(Stream stream, HttpPeer peer, std::shared_ptr<asio::ssl::context> tls,
             std::shared_ptr<const HttpShared> shared, std::shared_ptr<const void> alive)
      : alive_(std::move(alive)),
        tls_(std::move(tls)),
        stream_(std::move(stream)),
        peer_(std::move(peer)),
        shared_(std::move(shared)),
        buffer_(shared_->limits.max_header_bytes),
        deadline_(executor()),
        began_(steady_clock::now()) {}

  void Start() override {
    Run([this] {
      if constexpr (kIsTls) {
        SetDeadline(shared_->limits.handshake_timeout);
        stream_.async_handshake(asio::ssl::stream_base::server, WhileOpen([this](error_code error) {
                                  if (error) return End();
                                  peer_.names = NamesOfClient(stream_.native_handle());
                                  ReadHeader();
                                }));
      } else {
        ReadHeader();
      }
    });
  }
  const HttpPeer& peer() const override { return peer_; }
  bool is_busy(bool with_uploads) const override {
    const Phase phase = phase_;
    return phase == Phase::kAnswer || (with_uploads && phase == Phase::kBody);
  }
  void Close() override {
    Run([this] { End(); });
  }
  void Post(std::function<void()> step) override {
    asio::post(stream_.get_executor(), Then([step = std::move(step)] { step(); }));
  }
  void Send(HttpAnswer answer, std::function<void()> sent) override {
    Run([this, answer = std::move(answer), sent = std::move(sent)]() mutable {
      Write(std::move(answer), std::move(sent));
    });
  }

 private:
  // The connection waits for a header or receives one, receives a body, waits for an answer or sends it, waits after
  // its last answer until the client has read it, or has ended.
  enum class Phase { kHeader, kBody, kAnswer, kLinger, kEnded };

  // Runs a step on the executor, at once if this thread runs it already.
  template <typename Step>
  void Run(Step step) {
    asio::dispatch(executor(), Then(std::move(step)));
  }
  // A handler that keeps the connection until it is called. An exception, for lack of memory, ends the connection.
  template <typename Handler>
  auto Then(Handler handler) {
    return [self = this->shared_from_this(), handler = std::move(handler)](auto... results) mutable {
      BusyThreads* const busy = self->shared_->busy;
      if (running++ == 0 && busy != nullptr) busy->Begin(http_thread);
      try {
        handler(results...);
      } catch (const std::exception& error) {
        LogException("http", error);
        self->Abandon();
      }
      if (--running == 0 && busy != nullptr) busy->End(http_thread);
    };
  }
  // A handler that is left out once the connection has ended: what was read before may still come.
  template <typename Handler>
  auto WhileOpen(Handler handler) {
    return Then([this, handler = std::move(handler)](auto... results) mutable {
      if (phase_ != Phase::kEnded) handler(results...);
    });
  }
  Strand executor() { return socket().get_executor(); }
  Socket& socket() {
    if constexpr (kIsTls) {
      return stream_.next_layer();
    } else {
      return stream_;
    }
  }

  void SetDeadline(steady_clock::duration time) {
    if (phase_ == Phase::kEnded) return;
    deadline_.expires_after(time);
    deadline_.async_wait(Then([this](error_code error) {
      if (!error && deadline_.expiry() <= steady_clock::now()) OnDeadline();
    }));
  }
  // A request that is being received gets the answer 408: the cancelled read's handler sends it, or that of the next
  // read.
  void OnDeadline() {
    const bool is_received = phase_ == Phase::kBody || (phase_ == Phase::kHeader && header_bytes_ + buffer_.size() > 0);
    if (!is_received || std::exchange(is_late_, true)) return End();
    SetDeadline(kLastReads);
    error_code ignored;
    socket().cancel(ignored);
  }

  void ReadHeader() {
    parser_.emplace();
    parser_->header_limit(static_cast<uint32_t>(shared_->limits.max_header_bytes));
    parser_->body_limit(shared_->limits.max_body_bytes);
    header_bytes_ = 0;
    is_http_1_0_ = is_head_ = is_late_ = false;
    phase_ = Phase::kHeader;
    SetDeadline(shared_->limits.receive_timeout);
    ReadMoreOfHeader();
  }
  // The parser limits only the line that it reads, not all of them.
  void ReadMoreOfHeader() {
    http::async_read_some(stream_, buffer_, *parser_, WhileOpen([this](error_code error, size_t bytes) {
                            header_bytes_ += bytes;
                            if (is_late_) return RefuseLate("header");
                            if (!error && header_bytes_ > shared_->limits.max_header_bytes) {
                              error = http::error::header_limit;
                            }
                            if (error || parser_->is_header_done()) return OnHeader(error);
                            ReadMoreOfHeader();
                          }));
  }

  void OnHeader(error_code error) {
    if (error == http::error::header_limit || error == http::error::buffer_overflow) {
      return Refuse(431, fmt::format("the request's header must have at most {} bytes (--max-metadata-bytes)",
                                     shared_->limits.max_header_bytes));
    }
    if (error == http::error::body_limit) return RefuseSize();
    if (error == http::error::end_of_stream || error == http::error::partial_message) return End();
    if (error && error.category() == make_error_code(http::error::bad_version).category()) {
      return Refuse(400, "must be HTTP/1.1: " + error.message());
    }
    if (error) return End();
    auto& message = parser_->get();
    is_http_1_0_ = message.version() < 11;
    is_head_ = message.method() == http::verb::head;
    is_last_ = !parser_->keep_alive();
    const auto length = parser_->content_length();
    const bool has_body = parser_->chunked() || (length && *length > 0);
    HttpRequest request;
    request.verb = std::string(message.method_string());
    request.target = std::string(message.target());
    request.fields = std::move(static_cast<http::fields&>(message));
    request.peer = &peer_;
    if (!HasPlainEncoding(request)) return Refuse(501, "Transfer-Encoding: must be absent or chunked");
    const bool is_expecting = request.fields.count(http::field::expect) > 0 && !is_http_1_0_;
    if (is_expecting && !boost::beast::iequals(request.fields[http::field::expect], "100-continue")) {
      return Refuse(417, "Expect: must be absent or 100-continue");
    }
    // RFC 9112, section 3.2.
    if (request.fields.count(http::field::host) != 1 && !is_http_1_0_) return Refuse(400, "Host: must be there once");
    request.caller = ConnectionOfCaller(request);
    caller_ = server::NameOf(PeerOf(request.caller));
    auto begun = shared_->handler(request);
    if (auto* answer = std::get_if<HttpAnswer>(&begun)) {
      is_last_ |= has_body;  // which is not read
      return Write(std::move(*answer), nullptr);
    }
    continuation_ = std::move(std::get<HttpContinuation>(begun));
    request_ = std::move(request);
    body_ = std::make_shared<HttpBody>(shared_->buffers);
    phase_ = Phase::kBody;
    SetDeadline(shared_->limits.receive_timeout);
    if (!has_body) return Hand();
    const auto read = [this, length = length.value_or(0)] { parser_->chunked() ? ReadChunk() : BeginBody(length); };
    if (!is_expecting) return read();
    static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    asio::async_write(stream_, asio::buffer(kContinue.data(), kContinue.size()),
                      WhileOpen([this, read](error_code failed, size_t) { failed ? End() : read(); }));
  }
  std::string ConnectionOfCaller(const HttpRequest& request) const {
    if (peer_.is_trusted_proxy) return std::string(request.field(kProxiedPeer));
    return peer_.is_unix() ? "" : peer_.name;
  }
  // Other encodings than "chunked" alone, which some parsers ignore and some take, would hide requests in a body.
  bool HasPlainEncoding(const HttpRequest& request) const {
    const size_t number = request.fields.count(http::field::transfer_encoding);
    if (number == 0) return true;
    return number == 1 && !is_http_1_0_ && parser_->chunked() &&
           boost::beast::iequals(request.fields[http::field::transfer_encoding], "chunked");
  }

  // A body of this size is read into one block, whose pages are touched, and charged, as its bytes come.
  void BeginBody(size_t size) {
    body_->size = size;
    try {
      body_->block = body_->pool->Take(size);
    } catch (const std::bad_alloc&) {
      return Refuse(503, "out of memory");
    }
    const size_t here = std::min(buffer_.size(), size);
    if (!Charge(here)) return;
    std::memcpy(body_->block.data, buffer_.data().data(), here);
    buffer_.consume(here);
    body_->received = here;
    ReadBody();
  }
  void ReadBody() {
    const size_t left = body_->size - body_->received;
    if (left == 0) return Hand();
    if (body_->charged == body_->received && !Charge(std::min(left, kPiece))) return;
    stream_.async_read_some(asio::buffer(body_->block.data + body_->received, body_->charged - body_->received),
                            WhileOpen([this](error_code error, size_t bytes) {
                              if (is_late_) return RefuseLate("body");
                              if (error) return End();
                              body_->received += bytes;
                              ReadBody();
                            }));
  }
  void ReadChunk() {
    if (parser_->is_done()) return Hand();
    body_->chunk.resize(kChunk);
    auto& into = parser_->get().body();
    into.data = body_->chunk.data();
    into.size = body_->chunk.size();
    http::async_read_some(stream_, buffer_, *parser_, WhileOpen([this](error_code error, size_t) {
                            if (is_late_) return RefuseLate("body");
                            if (error == http::error::need_buffer) error = {};
                            if (error == http::error::body_limit) return RefuseSize();
                            if (error && error.category() == make_error_code(http::error::bad_chunk).category()) {
                              return Refuse(400, "the body must be in chunks of HTTP/1.1: " + error.message());
                            }
                            if (error) return End();
                            const size_t bytes = body_->chunk.size() - parser_->get().body().size;
                            if (body_->text.size() + bytes > body_->charged && !Charge(kPiece)) return;
                            body_->text.append(body_->chunk.data(), bytes);
                            ReadChunk();
                          }));
  }
  // Charges further bytes of the body. Returns false, with an answer under way, if they do not fit.
  bool Charge(size_t bytes) {
    if (bytes == 0) return true;
    server::Charge charge;
    if (!shared_->body_bytes->Take(caller_, static_cast<int64_t>(bytes), &charge)) {
      HttpAnswer answer = HttpError(503, "too many bytes of requests over HTTP");
      answer.fields.emplace_back("Retry-After", "1");
      is_last_ = true;
      Write(std::move(answer), nullptr);
      return false;
    }
    body_->charges.push_back(std::move(charge));
    body_->charged += bytes;
    return true;
  }

  // Hands the whole request over.
  void Hand() {
    phase_ = Phase::kAnswer;
    deadline_.cancel();
    const SharedBytes bytes = body_->Share(body_);
    body_.reset();
    exchange_ = std::make_shared<ConnectionExchange>(this->shared_from_this(), std::move(request_), bytes);
    std::exchange(continuation_, nullptr)(exchange_);
    Watch();
  }
  // Reads on while the request is answered, to see whether the client goes away. It has not if it has sent more.
  void Watch() {
    if (exchange_ == nullptr || buffer_.size() > 0) return;
    is_watching_ = true;
    stream_.async_read_some(buffer_.prepare(kLookAhead), WhileOpen([this](error_code error, size_t bytes) {
                              is_watching_ = false;
                              if (error) return End();
                              buffer_.commit(bytes);
                              if (phase_ == Phase::kLinger) return Drain();
                              if (phase_ == Phase::kHeader) ReadHeader();
                            }));
  }

  void Refuse(int status, std::string_view text) {
    is_last_ = true;
    Write(HttpError(status, text), nullptr);
  }
  void RefuseSize() {
    Refuse(413, fmt::format("the request's body must have at most {} bytes (--max-request-bytes)",
                            shared_->limits.max_body_bytes));
  }
  void RefuseLate(std::string_view part) {
    Refuse(408, fmt::format("the request's {} did not come within --receive-timeout", part));
  }

  void Write(HttpAnswer answer, std::function<void()> sent) {
    sent_ = std::move(sent);
    body_.reset();
    if (phase_ == Phase::kEnded) return Release();
    phase_ = Phase::kAnswer;
    is_last_ |= shared_->is_draining() || steady_clock::now() - began_ >= shared_->limits.max_age;
    answer_ = std::move(answer);
    size_t bytes = answer_.body.size();
    for (const SharedBytes& more : answer_.more) bytes += more.bytes.size();
    header_ = HttpHeaderOf(answer_, bytes, is_last_, is_http_1_0_);
    std::vector<asio::const_buffer> pieces = {asio::buffer(header_)};
    if (!is_head_) {
      pieces.push_back(asio::buffer(answer_.body));
      for (const SharedBytes& more : answer_.more) pieces.emplace_back(more.bytes.data(), more.bytes.size());
    }
    SetDeadline(shared_->limits.send_timeout);
    asio::async_write(stream_, pieces, Then([this](error_code error, size_t) {
                        Release();
                        if (phase_ == Phase::kEnded) return;
                        if (error) return End();
                        if (is_last_) return Linger();
                        phase_ = Phase::kHeader;
                        if (!is_watching_) return ReadHeader();
                        SetDeadline(shared_->limits.receive_timeout);  // for what Watch() reads
                      }));
  }
  // Lets go of the request and its answer.
  void Release() {
    answer_ = {};
    exchange_.reset();
    if (sent_) std::exchange(sent_, nullptr)();
  }

  // Ends the connection once the client has, or soon: what it still sends would otherwise reset the connection, and the
  // answer be lost.
  void Linger() {
    phase_ = Phase::kLinger;
    SetDeadline(kLastReads);
    if constexpr (kIsTls) {
      // Says over TLS that nothing follows. It fails if the client still sends.
      if (!is_watching_) return stream_.async_shutdown(WhileOpen([this](error_code) { ShutDown(); }));
    }
    ShutDown();
  }
  void ShutDown() {
    error_code ignored;
    socket().shutdown(Socket::shutdown_send, ignored);
    if (!is_watching_) Drain();
  }
  void Drain() {
    if (phase_ == Phase::kEnded) return;
    buffer_.consume(buffer_.size());
    socket().async_read_some(buffer_.prepare(kLookAhead),
                             WhileOpen([this](error_code error, size_t) { error ? End() : Drain(); }));
  }
  void End() {
    if (phase_ == Phase::kEnded) return;
    phase_ = Phase::kEnded;
    error_code ignored;
    socket().close(ignored);
    deadline_.cancel();
    body_.reset();
    if (exchange_ != nullptr) exchange_->SetGone();
  }
  // Ends the connection after an exception. A request that has been handed over may still be answered.
  void Abandon() {
    End();
    Release();
  }

  const std::shared_ptr<const void> alive_;        // destroyed last
  const std::shared_ptr<asio::ssl::context> tls_;  // outlives stream_
  Stream stream_;
  HttpPeer peer_;
  const std::shared_ptr<const HttpShared> shared_;
  boost::beast::flat_buffer buffer_;  // what came and is not parsed yet
  asio::basic_waitable_timer<steady_clock, asio::wait_traits<steady_clock>, Strand> deadline_;
  const steady_clock::time_point began_;
  std::optional<http::request_parser<http::buffer_body>> parser_;
  size_t header_bytes_ = 0;
  HttpRequest request_;
  std::string caller_;  // whose request's body is charged
  HttpContinuation continuation_;
  std::shared_ptr<HttpBody> body_;
  std::shared_ptr<ConnectionExchange> exchange_;  // being answered
  HttpAnswer answer_;
  std::string header_;
  std::function<void()> sent_;
  std::atomic<Phase> phase_{Phase::kHeader};
  bool is_http_1_0_ = false, is_head_ = false, is_last_ = false;  // of the current request
  bool is_late_ = false;                                          // the request, for --receive-timeout
  bool is_watching_ = false;                                      // a read of Watch() is pending
};

}  // namespace

std::shared_ptr<HttpConnection> MakeHttpConnection(HttpConnection::Socket socket, HttpPeer peer,
                                                   std::shared_ptr<asio::ssl::context> tls,
                                                   std::shared_ptr<const HttpShared> shared,
                                                   std::shared_ptr<const void> alive) {
  using Plain = Connection<HttpConnection::Socket>;
  using Tls = Connection<asio::ssl::stream<HttpConnection::Socket>>;
  if (tls == nullptr) {
    return std::make_shared<Plain>(std::move(socket), std::move(peer), nullptr, std::move(shared), std::move(alive));
  }
  asio::ssl::stream<HttpConnection::Socket> stream(std::move(socket), *tls);
  return std::make_shared<Tls>(std::move(stream), std::move(peer), std::move(tls), std::move(shared), std::move(alive));
}

}  // namespace posenc::server
