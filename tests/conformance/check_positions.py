"""Compares position ids: each class's own get_rope_index beside Positions by its config.json, on generated inputs."""

import importlib
import json
import types

import numpy
import torch
from position_inputs import Inputs
from table import Row
from tensors import array
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

INPUTS = 1000
CONFIGS = 4

# Model types with the options of their inputs: spans of grids by types of tokens.
BY_GRIDS = {
    "qwen2_vl": ("Qwen2VLModel", {}),
    "paddleocr_vl": ("PaddleOCRVLModel", {}),
    "qwen2_5_vl": ("Qwen2_5_VLModel", {"seconds": True}),
    "qwen3_vl": ("Qwen3VLModel", {"per_frame": True}),
    "qwen3_vl_moe": ("Qwen3VLMoeModel", {"per_frame": True}),
    "qwen3_5": ("Qwen3_5Model", {"per_frame": True}),
    "qwen3_5_moe": ("Qwen3_5MoeModel", {"per_frame": True}),
    "qwen4_exp": ("Qwen4ExpModel", {"per_frame": True}),
    "glm4v": ("Glm4vModel", {"per_frame": True}),
    "glm46v": ("Glm46VModel", {"per_frame": True}),
    "glm4v_moe": ("Glm4vMoeModel", {"per_frame": True}),
    "glm_ocr": ("GlmOcrModel", {"per_frame": True}),
    "glmga": ("Glm46VModel", {"per_frame": True}),
    "cohere_compass": ("CohereCompassModel", {"per_frame": True}),
    "cosmos3_omni": ("Cosmos3OmniModel", {"per_frame": True}),
    "cosmos3_edge": ("Cosmos3EdgeModel", {"per_frame": True}),
    "ernie4_5_vl_moe": ("Ernie4_5_VLMoeModel", {}),
    "hy_v4_vl": ("HYV4VLModel", {"padded": 1}),
    "hunyuan_vl": ("HunYuanVLModel", {"padded": 1, "videos": False, "markers": True}),
}
# The field of Positions for an argument of get_rope_index with another name.
ARGUMENTS = {"second_per_grid_ts": "second_per_grids"}


# Models whose ids are rows of a table after its padding: their modules, with the class that has the function or "".
AFTER_PADDING = {
    "altclip_text_model": ("altclip", "AltRobertaEmbeddings"),
    "bridgetower_text_model": ("bridgetower", "BridgeTowerTextEmbeddings"),
    "camembert": ("camembert", "CamembertEmbeddings"),
    "clap_text_model": ("clap", "ClapTextEmbeddings"),
    "data2vec-text": ("data2vec", "Data2VecTextEmbeddings"),
    "ibert": ("ibert", ""),
    "layoutlmv3": ("layoutlmv3", "LayoutLMv3TextEmbeddings"),
    "lilt": ("lilt", "LiltTextEmbeddings"),
    "longformer": ("longformer", ""),
    "luke": ("luke", ""),
    "markuplm": ("markuplm", "MarkupLMEmbeddings"),
    "mpnet": ("mpnet", ""),
    "roberta": ("roberta", "RobertaEmbeddings"),
    "roberta-prelayernorm": ("roberta_prelayernorm", "RobertaPreLayerNormEmbeddings"),
    "xlm-roberta": ("xlm_roberta", "XLMRobertaEmbeddings"),
    "xlm-roberta-xl": ("xlm_roberta_xl", "XLMRobertaXLEmbeddings"),
    "xmod": ("xmod", "XmodEmbeddings"),
}
# These have one text of the function each, so that fewer inputs are drawn.
TABLE_INPUTS = 100


def rows(service):
    for name in AFTER_PADDING:
        yield compare_after_padding(service, name)
    for name, (class_name, options) in BY_GRIDS.items():
        yield compare(service, name, class_name, lambda inputs, config, options=options: by_grids(inputs, config, options))
    yield compare(service, "glm_image", "GlmImageModel",
                  lambda inputs, config: inputs.glm_image(config.image_start_token_id, config.image_end_token_id))
    yield compare(service, "minicpmv4_7", "MiniCPMV4_7Model", lambda inputs, config: inputs.minicpm(config))
    for part in ("thinker", "talker"):
        for name, prefix in (("qwen2_5_omni", "Qwen2_5Omni"), ("qwen3_omni_moe", "Qwen3OmniMoe")):
            yield compare(service, f"{name}_{part}", f"{prefix}{part.title()}ForConditionalGeneration", omni_case)


def compare(service, name, class_name, case_of):
    row = Row(name, f"{INPUTS} inputs")
    inputs = Inputs(sum(name.encode()))
    models = [original(name, class_name, n) for n in range(CONFIGS)]
    for n in range(INPUTS):
        model, text = models[n % CONFIGS]
        case = case_of(inputs, model.config)
        theirs, deltas = (call_talker if name == "qwen3_omni_moe_talker" else call)(model, case)
        answer = service.positions(text, case)
        row.compare(array(answer.ids).astype("f8"), theirs.numpy().astype("f8"))
        row.compare(array(answer.rope_deltas).astype("f8"), expected_deltas(name, deltas, case))
        decode = getattr(model, "_cached_decode_position_ids", None)
        if decode is not None:
            row.compare(array(answer.decode_ids).astype("f8"), decode.permute(1, 0, 2).numpy().astype("f8"))
        if n % 10 == 0:
            compare_chunk(service, row, inputs, text, case, theirs)
        if n % 5 == 0 and name != "glm_image":
            compare_decoding(service, row, inputs, name, model, text, case)
    return row


def compare_after_padding(service, name):
    row = Row(name, f"{TABLE_INPUTS} inputs")
    random = numpy.random.default_rng(sum(name.encode()))
    package, class_name = AFTER_PADDING[name]
    file = "data2vec_text" if package == "data2vec" else package
    module = importlib.import_module(f"transformers.models.{package}.modeling_{file}")
    create = (getattr(module, class_name) if class_name else module).create_position_ids_from_input_ids
    names = create.__code__.co_varnames[:create.__code__.co_argcount]
    for n in range(TABLE_INPUTS):
        config = CONFIG_MAPPING[name](**({} if n % 3 else {"pad_token_id": int(random.integers(0, 5))}))
        padding = 1 if name == "mpnet" else config.pad_token_id
        ids = random.integers(0, 8, (random.integers(1, 4), random.integers(1, 12)))
        cached = int(random.integers(0, 9)) if "cache_length" in names and n % 2 else 0
        arguments = [torch.from_numpy(ids), padding] + [cached] * ("cache_length" in names)
        theirs = create(*([None] if names[0] == "self" else []), *arguments)
        case = {"input_ids": ids, **({"cache_length": cached} if cached else {})}
        answer = service.positions(config.to_json_string(use_diff=False).encode(), case)
        row.compare(array(answer.ids)[0].astype("f8"), theirs.numpy().astype("f8"))
    return row


def expected_deltas(name, deltas, case):
    """Qwen2.5-Omni's talker keeps its deltas without padding, in the midst of its forward."""
    deltas = deltas.flatten()
    if name == "qwen2_5_omni_talker":
        deltas = deltas - torch.from_numpy(1 - case["attention_mask"]).sum(dim=1)
    return deltas.numpy().astype("f8")


def compare_chunk(service, row, inputs, text, case, theirs):
    """A chunk is a slice of the whole."""
    begin = inputs.between(0, theirs.shape[2])
    count = inputs.between(0, theirs.shape[2] - begin)
    answer = service.positions(text, case, token_begin=begin, token_count=count)
    row.compare(array(answer.ids).astype("f8"), theirs[:, :, begin:begin + count].numpy().astype("f8"))


def compare_decoding(service, row, inputs, name, model, text, case):
    """Text after the inputs, by the class's own method, with and without a mask."""
    if not hasattr(model, "compute_3d_position_ids") and not name.endswith("_talker"):
        return
    first = next(value for field, value in case.items() if field in ("mm_token_type_ids", "input_ids"))
    (sequences, cached), count = first.shape, inputs.between(1, 4)
    mask = case.get("attention_mask")
    if mask is not None:
        mask = numpy.concatenate([mask, numpy.ones((sequences, count), "i8")], axis=1)
    model.rope_deltas = call(model, case)[1]
    cache = types.SimpleNamespace(get_seq_length=lambda: cached)
    if name == "hunyuan_vl":
        theirs = decoding_of_hunyuan(model, cache, sequences, cached + count, mask)
    elif name.endswith("_talker"):
        theirs = decoding_of_talker(name, model, case, cache, sequences, count)
    else:
        theirs = model.compute_3d_position_ids(
            None, inputs_embeds=torch.zeros(sequences, count, 1), cache=cache,
            attention_mask=None if mask is None else torch.tensor(mask), **dict.fromkeys(missing(model)))
    request = {"cache_length": cached, "sequences": sequences, "length": count, "rope_deltas": model.rope_deltas.numpy()}
    answer = service.positions(text, request | ({} if mask is None else {"attention_mask": mask}))
    row.compare(array(answer.ids).astype("f8"), theirs[:, :, -count:].numpy().astype("f8"))


def decoding_of_hunyuan(model, cache, sequences, length, mask):
    """The method of generation, which takes the deltas from the model."""
    from transformers.models.hunyuan_vl.modeling_hunyuan_vl import HunYuanVLForConditionalGeneration as Generation
    generation = Generation.__new__(Generation)
    torch.nn.Module.__init__(generation)
    generation.config, generation.model = model.config, model
    arguments = {"cache": cache} | ({} if mask is None else {"attention_mask": torch.tensor(mask)})
    inputs = torch.zeros(sequences, length if mask is not None else length - cache.get_seq_length())
    return generation._prepare_position_ids_for_generation(inputs, arguments)


def decoding_of_talker(name, model, case, cache, sequences, count):
    """Positions after the cache, padding included, as the talkers' deltas have it."""
    if name == "qwen3_omni_moe_talker":
        call_talker(model, case)  # sets the deltas
        return model.compute_3d_position_ids(torch.zeros(sequences, count, 1), cache=cache)
    # Qwen2.5-Omni's talker has these lines in the midst of its forward.
    model.rope_deltas = torch.from_numpy(expected_deltas(name, model.rope_deltas, case)).long()[:, None]
    positions = torch.arange(count).view(1, -1).expand(sequences, -1) + cache.get_seq_length() + model.rope_deltas
    return positions.unsqueeze(0).expand(3, -1, -1)


def missing(model):
    """Arguments of compute_3d_position_ids that have no default."""
    names = model.compute_3d_position_ids.__wrapped__.__code__.co_varnames
    return [name for name in ("image_grid_thw", "video_grid_thw") if name in names]


def original(name, class_name, number):
    """Returns a model without weights, and its config.json."""
    config = config_of(name, number)
    package = "glm46v" if name == "glmga" else config.__module__.rsplit(".", 2)[-2]  # glmga has no classes of its own
    module = importlib.import_module(f"transformers.models.{package}.modeling_{package}")
    cls = getattr(module, class_name)
    model = cls.__new__(cls)
    torch.nn.Module.__init__(model)
    model.config = config
    if "omni" in name and "cosmos" not in name:
        model.spatial_merge_size = merge_of(config)
    if name.endswith("thinker"):
        model.compute_3d_position_ids = types.MethodType(
            getattr(module, class_name.replace("ForConditionalGeneration", "Model")).compute_3d_position_ids, model)
    text = json.loads(config.to_json_string(use_diff=False))
    if name == "qwen3_omni_moe_talker":  # the class has no field for it, files do
        text["audio_config"] = {"n_window": 50}
        config.audio_config = types.SimpleNamespace(**text["audio_config"])
        text = {"model_type": "qwen3_omni_moe", "talker_config": text}
    return model, json.dumps(text).encode()


def config_of(name, number):
    vision = {} if number == 0 else {"spatial_merge_size": (2, 3, 1)[number % 3]}
    fields = {"vision_config": vision}
    if name == "qwen2_5_vl" and number:
        vision["tokens_per_second"] = (2, 25, 1)[number % 3]
    if name == "ernie4_5_vl_moe" and number:
        vision["temporal_merge_size"] = number
    if name == "hunyuan_vl":
        section = ([16, 24, 24], [16, 16, 16, 16])[number % 2]
        fields["text_config"] = {"head_dim": 128, "rope_parameters": {
            "rope_type": "default", "rope_theta": 10000.0, "mrope_section": section}}
    if name == "minicpmv4_7":
        fields = {"slice_start_id": 11, "slice_end_id": 12, "image_start_id": 13, "image_end_id": 14, "newline_id": 15,
                  "downsample_mode": ("16x", "4x")[number % 2]}
    if name.endswith("_thinker"):
        fields |= {"vision_start_token_id": 151652, "position_id_per_seconds": (25, 2, 13, 25)[number]}
    if name.endswith("_talker"):
        fields = {"spatial_merge_size": (2, 2, 3, 1)[number], "position_id_per_seconds": (25, 2, 13, 25)[number]}
    return CONFIG_MAPPING[name](**fields) if name in CONFIG_MAPPING else omni_config(name)(**fields)


def omni_config(name):
    package, part = name.rsplit("_", 1)
    module = importlib.import_module(f"transformers.models.{package}.configuration_{package}")
    prefix = {"qwen2_5_omni": "Qwen2_5Omni", "qwen3_omni_moe": "Qwen3OmniMoe"}[package]
    return getattr(module, f"{prefix}{part.title()}Config")


def merge_of(config):
    vision = getattr(config, "vision_config", None)
    return getattr(vision, "spatial_merge_size", None) or getattr(config, "spatial_merge_size", 2)


def by_grids(inputs, config, options):
    merge_t = getattr(config.vision_config, "temporal_merge_size", 1)
    return inputs.grids(merge_of(config), merge_t, **options)


def omni_case(inputs, config):
    newer = type(config).__name__.startswith("Qwen3")  # the talker's configuration has no model_type of its own
    per_second = config.position_id_per_seconds
    if newer:
        from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import _get_feat_extract_output_lengths as audio
    else:
        def audio(frames):
            return ((frames - 1) // 2 + 1 - 2) // 2 + 1

    def interleave(frames, sound, grid, seconds, merge):
        """The order does not matter to the ids: only where the first frame and the first sound are."""
        return frames[:1] + sound + frames[1:]

    return inputs.omni(config, merge_of(config), audio, interleave, newer)


@torch.no_grad()
def call(model, case):
    """Returns (ids, deltas) of the original."""
    arguments = {field: torch.from_numpy(value.copy()) if isinstance(value, numpy.ndarray) else value
                 for field, value in case.items()}
    names = model.get_rope_index.__code__.co_varnames[:model.get_rope_index.__code__.co_argcount]
    if "input_ids" not in arguments:
        arguments["input_ids"] = torch.zeros_like(arguments["mm_token_type_ids"])
    seconds = arguments.get("second_per_grid_ts")
    if seconds is not None and seconds.dtype == torch.float64:  # Python's numbers
        arguments["second_per_grid_ts"] = seconds.tolist()
    arguments = {ARGUMENTS.get(field, field) if ARGUMENTS.get(field) in names else field: value
                 for field, value in arguments.items()}
    return model.get_rope_index(**arguments)


def call_talker(model, case):
    """Returns (ids, deltas) of the class whose compute_3d_position_ids counts text alone in another way."""
    tensors = {field: torch.from_numpy(value.copy()) for field, value in case.items() if isinstance(value, numpy.ndarray)}
    model.rope_deltas = None
    ids = model.compute_3d_position_ids(
        tensors["input_ids"][..., None], tensors["input_ids"], tensors["attention_mask"],
        image_grid_thw=tensors.get("image_grid_thw"), video_grid_thw=tensors.get("video_grid_thw"),
        use_audio_in_video=case["use_audio_in_video"], audio_feature_lengths=tensors.get("audio_seqlens"),
        video_second_per_grid=tensors.get("second_per_grid_ts"))
    return ids, model.rope_deltas
