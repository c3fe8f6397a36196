// The table of RPCs against the proto's service and the operations of the library.
#include "posenc/wire/rpcs.h"

#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "posenc/service/operations.h"

namespace posenc::wire {
namespace {

TEST(Rpcs, FollowTheProto) {
  ASSERT_FALSE(Rpcs().empty());
  const RpcDescription& stream = RpcOf(*v1::StreamTableRequest::descriptor());
  EXPECT_EQ(stream.name, "StreamTable");
  EXPECT_EQ(stream.path, "/posenc.v1.PositionalEncodingService/StreamTable");
  EXPECT_EQ(stream.response.GetDescriptor(), v1::StreamTableResponse::descriptor());
  EXPECT_EQ(FindRpc("StreamTable"), &stream);
  EXPECT_EQ(FindRpc("Missing"), nullptr);
}

// RpcOf() requires a different request message for each RPC.
TEST(Rpcs, HaveARequestMessageEach) {
  std::set<const google::protobuf::Descriptor*> requests;
  for (const RpcDescription& rpc : Rpcs()) EXPECT_TRUE(requests.insert(rpc.request.GetDescriptor()).second) << rpc.name;
}

TEST(Operations, AreThereForEachRpc) {
  std::set<std::string> names = {"StreamApplyRotary"};
  for (const UnaryOperation& operation : LibraryOperations().unary) names.insert(operation.rpc.name);
  for (const TileOperation& operation : LibraryOperations().tiles) names.insert(operation.rpc.name);
  std::set<std::string> all;
  for (const RpcDescription& rpc : Rpcs()) all.insert(rpc.name);
  EXPECT_EQ(names, all);
}

}  // namespace
}  // namespace posenc::wire
