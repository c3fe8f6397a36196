#include "tools/posenc/attention_flags.h"

#include <string>

#include "tools/posenc/field_flags.h"
#include "tools/posenc/values.h"

namespace posenc::command {
namespace {

constexpr char kGeometry[] = "Geometry";

void AddFillFlag(CLI::App& app, v1::Mask* mask) {
  app.add_option_function<std::string>(
         "--fill",
         [mask](const std::string& text) {
           if (text == "-inf") {
             mask->set_fill_kind(v1::MASK_FILL_NEGATIVE_INFINITY);
           } else if (text == "lowest") {
             mask->set_fill_kind(v1::MASK_FILL_LOWEST_FINITE);
           } else if (const auto number = ParseDouble(text); number.ok()) {
             mask->set_fill_value(*number);
           } else {
             throw CLI::ValidationError("--fill", "is neither -inf, lowest nor a number");
           }
         },
         "What hidden cells hold; lowest: the type's lowest finite value")
      ->type_name("-inf|lowest|N")
      ->group("Mask");
}

}  // namespace

void AddGeometryFlags(CLI::App& app, v1::BiasGeometry* geometry) {
  AddFieldFlags(app, kGeometry, geometry,
                {{"query_length", "Sq; a tensor that has it says it"},
                 {"key_length", "Sk; a tensor that has it says it"},
                 {"query_offset", "Where the first query stands; required where Sq and Sk differ"},
                 {"query_offsets", "The same, one a batch row"},
                 {"query_positions", "Where each query stands, [Sq] or [B, Sq]"},
                 {"key_positions", "Where each key stands, [Sk] or [B, Sk]"}});
}

void AddHeadFlags(CLI::App& app, v1::BiasGeometry* geometry) {
  AddFieldFlags(app, kGeometry, geometry,
                {{"head_start", "First of the model's heads that is wanted"},
                 {"head_count", "How many are wanted; default all from there"}});
}

void AddMaskFlags(CLI::App& app, v1::Mask* mask) {
  AddFieldFlags(app, "Mask", mask,
                {{"causal", "Hides keys after the query"},
                 {"window_left", "Hides keys more than N before the query"},
                 {"window_right", "Hides keys more than N after the query"},
                 {"prefix_length", "Shows keys before N to every query, with --causal; one, or one a batch row"},
                 {"query_documents", "Hides keys of another document, [Sq] or [B, Sq]"},
                 {"key_documents", "The same, [Sk] or [B, Sk]"},
                 {"key_valid", "BOOL [B, Sk]: padding"},
                 {"fully_masked_row", "What a query that sees no key gets"}});
  AddFillFlag(app, mask);
}

}  // namespace posenc::command
