#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "posenc/base/json_text.h"
#include "posenc/base/status.h"
#include "tools/load/histogram.h"
#include "tools/load/report_json.h"

namespace posenc::load {
namespace {

using Tree = nlohmann::json;

constexpr std::string_view kSchema = "posenc.load/1";
constexpr int64_t kMost = int64_t{1} << 53;  // limit of any count, so that sums of counts cannot overflow

// A position in the report. *status holds the first error; nothing is read after it.
struct Place {
  const Tree* json;  // null if absent
  std::string path;
  absl::Status* status;

  // The named field of this object; its absence is an error.
  Place At(const char* name) const {
    Place place{nullptr, path.empty() ? name : fmt::format("{}.{}", path, name), status};
    if (json == nullptr) return place;
    if (!json->is_object()) {
      Refuse("must be an object");
    } else if (const auto found = json->find(name); found != json->end()) {
      place.json = &*found;
    } else if (status->ok()) {
      *status = InvalidArgument("MISSING", place.path, "", "is missing");
    }
    return place;
  }
  bool Has(const char* name) const { return json != nullptr && json->is_object() && json->contains(name); }

  // True if there is a value of the required type; a wrong type is an error.
  bool Is(bool (Tree::*kind)() const, const char* limit) const {
    if (json == nullptr || !status->ok()) return false;
    if (!(json->*kind)()) Refuse(limit);
    return status->ok();
  }
  void Refuse(const std::string& limit) const {
    if (!status->ok()) return;
    const std::string value = json->is_string() ? json->get<std::string>() : json->is_structured() ? "" : json->dump();
    *status = InvalidArgument("MALFORMED", path, value, limit);
  }
};

void Read(const Place& place, bool* value) {
  if (place.Is(&Tree::is_boolean, "must be true or false")) *value = place.json->get<bool>();
}

void Read(const Place& place, std::string* value) {
  if (place.Is(&Tree::is_string, "must be a string")) *value = place.json->get<std::string>();
}

void Read(const Place& place, double* value) {
  if (!place.Is(&Tree::is_number, "must be a number")) return;
  *value = place.json->get<double>();
  if (*value < 0) place.Refuse("must not be negative");
}

void Read(const Place& place, int64_t* value) {
  const char* limit = "must be a whole number from 0 to 2^53";
  if (!place.Is(&Tree::is_number_unsigned, limit)) return;
  if (place.json->get<uint64_t>() > uint64_t{kMost}) return place.Refuse(limit);
  *value = place.json->get<int64_t>();
}

void Read(const Place& place, Histogram* value) {
  std::string text;
  const Place v2 = place.At("hdr_v2");
  Read(v2, &text);
  if (!place.status->ok()) return;
  auto histogram = FromV2(text);
  if (!histogram.ok()) return v2.Refuse(std::string(histogram.status().message()));
  if (histogram->Count() > kMost) return v2.Refuse("must hold at most 2^53 values");
  *value = *std::move(histogram);
}

void Read(const Place& place, Measurement* value);
void Read(const Place& place, Second* value);
void Read(const Place& place, Stall* value);
void Read(const Place& place, Step* value);

template <typename T>
void Read(const Place& place, std::map<std::string, T>* value) {
  if (!place.Is(&Tree::is_object, "must be an object")) return;
  for (const auto& [name, json] : place.json->items()) {
    Read({&json, fmt::format("{}[\"{}\"]", place.path, Quote(name)), place.status}, &(*value)[name]);
  }
}

template <typename T>
void Read(const Place& place, std::vector<T>* value) {
  if (!place.Is(&Tree::is_array, "must be a list")) return;
  for (const Tree& json : *place.json) {
    const std::string path = fmt::format("{}[{}]", place.path, value->size());
    Read({&json, path, place.status}, &value->emplace_back());
  }
}

void Read(const Place& place, Measurement* value) {
  Read(place.At("intended"), &value->counts.intended);
  Read(place.At("skipped"), &value->counts.skipped);
  Read(place.At("succeeded"), &value->counts.succeeded);
  Read(place.At("failed"), &value->counts.failed);
  Read(place.At("errors"), &value->errors);
  Read(place.At("request_bytes"), &value->request_bytes);
  Read(place.At("answer_bytes"), &value->answer_bytes);
  Read(place.At("latency_us"), &value->latency);
  Read(place.At("service_us"), &value->service);
  // Fields that were added later; older reports lack them.
  if (place.Has("client_late_us")) Read(place.At("client_late_us"), &value->late);
  if (place.Has("client_send_wait_us")) Read(place.At("client_send_wait_us"), &value->send_wait);
  Read(place.At("server_queue_us"), &value->server_queue);
  Read(place.At("server_compute_us"), &value->server_compute);
}

void Read(const Place& place, Second* value) {
  Read(place.At("offered_per_second"), &value->offered);
  Read(place.At("warm_up"), &value->warm_up);
  if (place.Has("completed")) Read(place.At("completed"), &value->completed);
  Read(place.At("measured"), &value->measured);
}

void Read(const Place& place, Stall* value) {
  Read(place.At("begin"), &value->begin);
  Read(place.At("seconds"), &value->seconds);
}

void Read(const Place& place, Step* value) {
  Read(place.At("name"), &value->name);
  Read(place.At("rate"), &value->rate);
  Read(place.At("concurrency"), &value->concurrency);
  Read(place.At("seconds"), &value->seconds);
  if (place.Has("drain_seconds")) Read(place.At("drain_seconds"), &value->drain_seconds);
  Read(place.At("measured"), &value->measured);
  if (place.Has("begin_second")) Read(place.At("begin_second"), &value->begin_second);
  if (place.Has("stalls")) Read(place.At("stalls"), &value->stalls);
  if (place.Has("overload")) Read(place.At("overload"), &value->overload);
  if (place.Has("held")) Read(place.At("held"), &value->held.emplace());
  if (place.Has("tries")) Read(place.At("tries"), &value->tries);
  if (value->held && value->tries == 0) value->tries = 1;  // a report of before searches repeated their tries
  if (place.Has("late_share")) {
    const Place late = place.At("late_share");
    Read(late.At("low"), &value->late.low);
    Read(late.At("high"), &value->late.high);
    Read(late.At("allowed"), &value->late_allowed);
  }
}

void Read(const Place& place, Mismatch* value) {
  Read(place.At("call"), &value->call);
  Read(place.At("tensor"), &value->tensor);
  Read(place.At("element"), &value->element);
  Read(place.At("expected"), &value->expected);
  Read(place.At("got"), &value->got);
}

void Read(const Place& place, Results* value) {
  Read(place.At("begin_time"), &value->begin_time);
  Read(place.At("seconds"), &value->seconds);
  // Fields that were added later; older reports lack them.
  if (place.Has("drain_seconds")) Read(place.At("drain_seconds"), &value->drain_seconds);
  if (place.Has("interrupted")) Read(place.At("interrupted"), &value->interrupted);
  if (place.Has("verify")) Read(place.At("verify"), &value->verify);
  if (place.Has("not_verified")) Read(place.At("not_verified"), &value->not_verified);
  int64_t clients = 0;
  Read(place.At("clients"), &clients);
  if (place.status->ok() && (clients < 1 || clients > 1'000'000)) place.At("clients").Refuse("must be 1 to 1,000,000");
  value->clients = static_cast<int>(clients);
  Read(place.At("warnings"), &value->warnings);
  Read(place.At("settings"), &value->settings);
  if (const Place mix = place.At("mix"); place.status->ok() && mix.json->is_object()) {
    value->mix_json = mix.json->dump(2, ' ', /*ensure_ascii=*/false);
  } else {
    Read(mix, &value->mix_json);
  }
  Read(place.At("server_version"), &value->server_version);
  Read(place.At("server_cpu_target"), &value->server_cpu_target);
  Read(place.At("memory_bytes_per_second"), &value->memory_bytes_per_second);
  Read(place.At("client_cpu_share"), &value->client_cpu_share);
  Read(place.At("late_starts_p99_us"), &value->late_starts_p99_us);
  Read(place.At("verified"), &value->verified);
  Read(place.At("mismatches"), &value->mismatches);
  if (place.Has("first_mismatch")) Read(place.At("first_mismatch"), &value->first_mismatch.emplace());
  if (place.Has("highest_rate")) Read(place.At("highest_rate"), &value->highest_rate.emplace());
  if (place.Has("lowest_missed_rate")) Read(place.At("lowest_missed_rate"), &value->lowest_missed_rate.emplace());
  if (place.Has("peak_per_second")) Read(place.At("peak_per_second"), &value->peak_per_second);
  if (place.Has("noise")) {
    Read(place.At("noise").At("share"), &value->noise.share);
    Read(place.At("noise").At("longest_us"), &value->noise.longest_us);
  }
  Read(place.At("steps"), &value->steps);
  if (value->stepped() && !place.Has("total")) {
    for (const Step& step : value->steps) value->total.Merge(step.measured);
  } else {
    Read(place.At("total"), &value->total);
  }
  Read(place.At("timeline"), &value->timeline);
}

}  // namespace

absl::StatusOr<Results> FromJson(std::string_view text) {
  Tree json;
  POSENC_RETURN_IF_ERROR(ParseJson(text, "report", &json));
  const std::string schema =
      json.is_object() && json.contains("schema") && json["schema"].is_string() ? json["schema"] : "";
  if (schema.rfind("posenc.load/", 0) != 0) return absl::InvalidArgumentError("is not a report of posenc load");
  if (schema != kSchema) {
    return InvalidArgument("UNSUPPORTED", "schema", schema, fmt::format("this posenc reads only {}", kSchema));
  }
  absl::Status status;
  Results results;
  Read({&json, "", &status}, &results);
  if (!status.ok()) return status;
  if (results.steps.empty()) return InvalidArgument("MALFORMED", "steps", "", "must hold at least one");
  return results;
}

}  // namespace posenc::load
