"""Where posenc differs from the originals on purpose. docs/accuracy.md lists the reasons, word for word."""

import dataclasses
import re

from client import Refusal


@dataclasses.dataclass(frozen=True)
class OnPurpose:
    """A kind of case that is not compared: by posenc's refusal, by the field, by the model type."""
    reason: str
    refusal: str = ""  # pattern of "REASON message" of posenc's refusal
    fields: str = ""  # pattern of a changed field
    types: str = ""  # pattern of the model type
    failure: str = ""  # pattern of the difference

    def covers(self, name, fields, failure, ours):
        refused = f"{ours.reason} {ours.message}" if isinstance(ours, Refusal) else failure.removeprefix("refused: ")
        if self.refusal and not re.search(self.refusal, refused):
            return False
        if self.types and not re.fullmatch(self.types, name):
            return False
        if self.fields and not any(re.search(self.fields, field) for field in fields):
            return False
        return not self.failure or bool(re.search(self.failure, failure))


EXCEPTIONS = (
    OnPurpose("a field of the scaling block that the class does not know is refused; transformers only warns",
               refusal="^UNKNOWN_FIELD "),
    OnPurpose("two fields that contradict each other are refused; transformers silently takes one of them",
               refusal="^CONFLICT .*must be (equal|absent|false)"),
    OnPurpose("a whole file without a head's width, or what it is computed from, is refused: a width is not guessed",
               refusal="^MISSING .*(num_attention_heads: must be given|must be given, or .* and num_attention_heads)"),
    OnPurpose("an original length that the file gives nowhere is refused; transformers takes the class's longest",
               refusal="^MISSING .*original_max_position_embeddings: must be given"),
    OnPurpose("an odd width is refused, also where it is at most 4, which transformers allows for its own tests",
               refusal="^OUT_OF_RANGE .*(must be even|even rotary width)"),
    OnPurpose("a share of the head for which the class computes narrower tables than its attention takes is refused",
               refusal="^UNSUPPORTED .*computes narrower tables"),
    OnPurpose("longrope in Gemma 4 and Dots3, whose layers have two widths, fails in transformers, which reads one width of all layers",
               types=".*gemma4?.*_text|dots3_note_text", failure="AmbiguousGlobalPerLayerAttributeError"),
    OnPurpose("buckets for distances below those that have a bucket each are refused",
               refusal="^OUT_OF_RANGE .*max_(bucket_)?distance"),
    OnPurpose("UDOP's encoder with several biases by token distance, which it adds, is refused", types="udop",
               refusal="^[A-Z_]+ .*must hold exactly one"),
    OnPurpose("an image smaller than a patch is refused", refusal="^OUT_OF_RANGE .*patches per side"),
    OnPurpose("CogVideoX's flag that switches the rotary embedding off is refused; the pipeline would still make tables",
               refusal="^UNSUPPORTED .*use_rotary_positional_embeddings", types="CogVideoX.*|ConsisID.*"),
    OnPurpose("QwenImageTransformer2DModel with use_layer3d_rope counts an image's layers as a position, which are no frames", types="QwenImageTransformer2DModel",
               fields="use_layer3d_rope"),
    OnPurpose("ChronoEditTransformer3DModel splits its tables in another way than it makes them if the width % 6 is 4",
               types="ChronoEditTransformer3DModel", fields="attention_head_dim"),
    OnPurpose("LTX-2 without rope_double_precision computes its frequencies in float32, in steps of its own, some units apart",
               types="(LTX2Video|SanaWMLTX2Refiner)Transformer3DModel", fields="rope_double_precision"),
    OnPurpose("a scaling that a vision class's formula does not know is refused; transformers ignores it",
               refusal="^UNSUPPORTED .*must be one block, of rope_type"),
    OnPurpose("an mrope_section that is not three numbers, or does not fill the rotated pairs, is refused",
               refusal="^(MISMATCH|OUT_OF_RANGE) .*mrope_section"),
    OnPurpose("a head without elements is refused; a rotary module alone computes empty tables", refusal="^OUT_OF_RANGE .*is 0 = "),
    OnPurpose("a head whose width is no multiple of four is refused for DINOv3 and its kin, whose tables are then wider than the head",
               refusal="^OUT_OF_RANGE .*must give heads of a multiple"),
    OnPurpose("an image smaller than a patch fails in Llama 4's vision class; its frequencies do not depend on the image",
               types="llama4_vision_model", fields="image_size", failure="out of bounds"),
    OnPurpose("a block that no layer of the file has is not read; DeepSeek-V4's class reads both of its blocks",
               types="deepseek_v4", fields=r"^rope_parameters$|\.main\.", failure="the original raises"),
    OnPurpose("an indexer beside the attention is not read; Qwen4-Exp's class refuses widths that do not fit it",
               types="qwen4_exp_text", fields="^indexer_", failure="the original raises"),
    OnPurpose("a file that gives rotary_dim but no number of heads is read; the width of GPT-J's and CodeGen's default heads may be smaller",
               types="gptj|codegen", fields="^n_head$", failure="the original raises RuntimeError: The size of tensor"),
    OnPurpose("Moonshine pads its heads after the rotation, which is no part of it", types="moonshine(_streaming)?",
               fields="pad_head_dim_to_multiple_of"),
)
