// Reading of a JSON object by its fields, each of which must be known.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace posenc::server {

// Absent fields and null are the same, and give an empty value. Errors are INVALID_ARGUMENT that name the field by its
// path. The tree must outlive it.
class JsonFields {
 public:
  // INVALID_ARGUMENT unless the value is an object.
  static absl::StatusOr<JsonFields> Of(const nlohmann::json& value, std::string path);

  absl::StatusOr<std::string> Text(std::string_view name);
  absl::StatusOr<bool> Flag(std::string_view name);
  // A non-negative integer.
  absl::StatusOr<uint64_t> Unsigned(std::string_view name);
  absl::StatusOr<std::vector<int64_t>> Integers(std::string_view name);
  absl::StatusOr<JsonFields> Object(std::string_view name);
  absl::StatusOr<std::vector<JsonFields>> Objects(std::string_view name);
  // Returns null if the field is absent.
  const nlohmann::json* Find(std::string_view name);

  const nlohmann::json::object_t& entries() const { return *object_; }
  std::string PathOf(std::string_view name) const;
  absl::Status Mismatch(std::string_view name, std::string_view wanted) const;
  // Returns an error if there is a field that has not been read.
  absl::Status RejectOthers() const;

  // Sets a parameter of the Open Inference Protocol, InferParameter or ModelRepositoryParameter, to a value. Returns
  // false for a value that is neither true, false, text nor an integer of 64 bits.
  template <typename Parameter>
  static bool SetParameter(const nlohmann::json& value, Parameter* parameter) {
    if (value.is_boolean()) {
      parameter->set_bool_param(value.get<bool>());
    } else if (value.is_string()) {
      parameter->set_string_param(value.get<std::string>());
    } else if (IsInteger(value)) {
      parameter->set_int64_param(value.get<int64_t>());
    } else {
      return false;
    }
    return true;
  }

 private:
  // True for an integer that an int64_t can hold.
  static bool IsInteger(const nlohmann::json& value) {
    return value.is_number_integer() && (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX);
  }

  JsonFields(const nlohmann::json::object_t* object, std::string path) : object_(object), path_(std::move(path)) {}

  const nlohmann::json::object_t* object_;
  std::string path_;
  std::set<std::string, std::less<>> known_;
};

}  // namespace posenc::server
