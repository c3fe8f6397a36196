// The fields of a settings struct by name: mapping, cache keys and config.json reading need no lists of their own.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace posenc {

// Declares, inside a struct, the fields that VisitFields visits. They have the names of the proto message's fields.
#define POSENC_FIELDS(...)                              \
  auto Fields() { return std::tie(__VA_ARGS__); }       \
  auto Fields() const { return std::tie(__VA_ARGS__); } \
  static constexpr std::string_view kFieldList = #__VA_ARGS__

template <class P>
concept HasFields = requires {
  P::kFieldList;
};

template <HasFields P>
inline constexpr auto kFieldNames = [] {
  std::array<std::string_view, std::tuple_size_v<decltype(std::declval<P&>().Fields())>> names;
  std::string_view rest = P::kFieldList;  // "a, b, c"
  for (std::string_view& name : names) {
    name = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), name.size() + 2));
  }
  return names;
}();

// Calls visit(name, field) for every field in POSENC_FIELDS, in that order. P may be const.
template <class P, class Visitor>
void VisitFields(P& p, Visitor&& visit) {
  const std::string_view* name = kFieldNames<std::remove_const_t<P>>.data();
  std::apply([&](auto&... field) { (visit(*name++, field), ...); }, p.Fields());
}

}  // namespace posenc
