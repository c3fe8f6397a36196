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
         "Value of masked cells; lowest: the type's lowest finite value; default -inf")
      ->type_name("-inf|lowest|N")
      ->group("Mask");
}

}  // namespace

void AddGeometryFlags(CLI::App& app, v1::BiasGeometry* geometry) {
  AddFieldFlags(app, kGeometry, geometry,
                {{"query_length", "Sq; default: from an input tensor that has it"},
                 {"key_length", "Sk; default: from an input tensor that has it"},
                 {"query_offset", "Position of the first query; required if Sq and Sk differ"},
                 {"query_offsets", "Position of the first query, one per batch row"},
                 {"query_positions", "Position of each query, [Sq] or [B, Sq]"},
                 {"key_positions", "Position of each key, [Sk] or [B, Sk]"}});
}

void AddHeadFlags(CLI::App& app, v1::BiasGeometry* geometry) {
  AddFieldFlags(app, kGeometry, geometry,
                {{"head_start", "Index of the first head to compute; default 0"},
                 {"head_count", "Number of heads to compute; default: all from --head-start on"}});
}

void AddHidingFlags(CLI::App& app, v1::Mask* mask) {
  AddFieldFlags(app, "Mask", mask,
                {{"causal", "Masks keys after the query"},
                 {"window_left", "Masks keys more than N before the query"},
                 {"window_right", "Masks keys more than N after the query"},
                 {"prefix_length", "With --causal: keys before position N are not masked; one N, or one per batch row"},
                 {"query_documents", "Document of each query, [Sq] or [B, Sq]; masks keys of other documents"},
                 {"key_documents", "Document of each key, [Sk] or [B, Sk]"},
                 {"key_valid", "BOOL [B, Sk]: false masks a key (padding)"}});
}

void AddMaskFlags(CLI::App& app, v1::Mask* mask) {
  AddHidingFlags(app, mask);
  AddFieldFlags(app, "Mask", mask,
                {{"fully_masked_row", "Values in the row of a query whose keys are all masked; default zeros"}});
  AddFillFlag(app, mask);
}

void CompleteMask(v1::Mask* mask, Session* session) {
  if (mask->fill_case() == v1::Mask::FILL_NOT_SET) {
    mask->set_fill_kind(v1::MASK_FILL_NEGATIVE_INFINITY);
    session->Assume("--fill", "-inf");
  }
  if (mask->fully_masked_row() == v1::FULLY_MASKED_ROW_UNSPECIFIED) {
    mask->set_fully_masked_row(v1::FULLY_MASKED_ROW_ZEROS);
    session->Assume("--fully-masked-row", "zeros");
  }
}

}  // namespace posenc::command
