// One request of a connection: the body that the connection receives, and the exchange that a handler answers.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/core/buffer_pool.h"
#include "server/core/fair_limit.h"
#include "server/http/connection.h"
#include "server/http/message.h"

namespace posenc::server {

// A request's body. Chunked ones are in `text`, whose sizes are not known before.
struct HttpBody {
  explicit HttpBody(std::shared_ptr<BufferPool> of) : pool(std::move(of)) {}
  ~HttpBody() {
    if (block.data != nullptr) pool->Give(block);
  }
  SharedBytes Share(const std::shared_ptr<HttpBody>& self) const {
    const auto* data = block.data != nullptr ? block.data : reinterpret_cast<const std::byte*>(text.data());
    return {{data, block.data != nullptr ? size : text.size()}, self};
  }

  const std::shared_ptr<BufferPool> pool;
  BufferPool::Block block{nullptr, 0};
  size_t size = 0, received = 0, charged = 0;
  std::string text, chunk;
  std::vector<Charge> charges;
};

class ConnectionExchange final : public HttpExchange {
 public:
  ConnectionExchange(std::shared_ptr<HttpConnection> connection, HttpRequest request, SharedBytes body)
      : connection_(std::move(connection)), request_(std::move(request)), body_(std::move(body)) {}

  const HttpRequest& request() const override { return request_; }
  const SharedBytes& body() const override { return body_; }
  bool is_gone() const override { return is_gone_; }
  void Post(std::function<void()> step) override { connection_->Post(std::move(step)); }
  void Answer(HttpAnswer answer, std::function<void()> sent) override {
    connection_->Send(std::move(answer), std::move(sent));
  }
  void Close() override { connection_->Close(); }

  void SetGone() { is_gone_ = true; }

 private:
  const std::shared_ptr<HttpConnection> connection_;
  const HttpRequest request_;
  const SharedBytes body_;
  std::atomic<bool> is_gone_{false};
};

}  // namespace posenc::server
