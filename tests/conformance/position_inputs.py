"""Generates descriptions of text, images, videos and audio, as the processors of multimodal models make them."""

import numpy

TEXT, IMAGE, VIDEO = 0, 1, 2


class Inputs:
    """Draws the inputs of one model type. Each case is a dictionary of arrays by TokenDescription's fields."""

    def __init__(self, seed):
        self.random = numpy.random.default_rng(seed)

    def between(self, low, high):
        return int(self.random.integers(low, high + 1))

    def chance(self, share):
        return bool(self.random.random() < share)

    def batch(self, sequences, pad=0, always_masked=False):
        """Pads rows of tuples, one array per place of the tuples, and adds an attention mask. `sequences`: lists."""
        length = max(len(sequence) for sequence in sequences) + (self.between(0, 3) if self.chance(0.3) else 0)
        columns = len(sequences[0][0])
        arrays = numpy.full((columns, len(sequences), length), pad, "i8")
        mask = numpy.zeros((len(sequences), length), "i8")
        left = self.chance(0.5)
        for row, sequence in enumerate(sequences):
            begin = length - len(sequence) if left else 0
            arrays[:, row, begin:begin + len(sequence)] = numpy.array(sequence, "i8").T
            mask[row, begin:begin + len(sequence)] = 1
        needed = always_masked or not mask.all()
        return arrays, mask if needed or self.chance(0.5) else None

    def text(self):
        return [(TEXT, self.between(1000, 2000)) for _ in range(self.between(1, 9))]

    def grid(self, merge, merge_t=1, frames=1):
        return [self.between(1, frames) * merge_t, self.between(1, 5) * merge, self.between(1, 5) * merge]

    # Types of tokens, with a grid for each span: Qwen2-VL and its relatives.
    def grids(self, merge, merge_t=1, per_frame=False, padded=0, videos=True, markers=False, seconds=False):
        images, clips, sequences = [], [], []
        for _ in range(self.between(1, 3)):
            sequence = self.text() if self.chance(0.8) else []
            for _ in range(self.between(0, 3)):
                video = videos and self.chance(0.5)
                grid = self.grid(merge, merge_t if video else 1, 4 if video else 1)
                (clips if video else images).append(grid)
                frames = grid[0] // (merge_t if video else 1)
                cells = grid[1] // merge * (grid[2] // merge + padded)
                spans = [cells] * frames if video and per_frame else [cells * frames]
                for span in spans:
                    extra = 2 if markers and self.chance(0.5) else 0
                    sequence += [(VIDEO if video else IMAGE, 7)] * (span + extra) + self.text()
            sequences.append(sequence or self.text())
        arrays, mask = self.batch(sequences)
        case = {"mm_token_type_ids": arrays[0]}
        if mask is not None:
            case["attention_mask"] = mask
        if images:
            case["image_grid_thw"] = numpy.array(images, "i8")
        if clips:
            case["video_grid_thw"] = numpy.array(clips, "i8")
            if seconds and self.chance(0.8):
                values = self.random.choice([0.5, 1.0, 1 / 3, 0.08, 2.0, 1.2, self.random.random() * 3], len(clips))
                case["second_per_grid_ts"] = values.astype("f4") if self.chance(0.5) else values
        return case

    def glm_image(self, start, end):
        grids, counts, sequences = [], [], []
        shared = self.chance(0.2)
        for _ in range(1 if shared else self.between(1, 3)):
            sequence, own = self.text(), self.between(1, 3)
            done = self.between(0, own)
            for n in range(own):
                grid = [1, self.between(1, 5), self.between(1, 5)]
                grids.append(grid)
                if n < done:
                    sequence += [(IMAGE, start)] + [(IMAGE, 9)] * (grid[1] * grid[2]) + [(TEXT, end)] + self.text()
            if self.chance(0.5):
                sequence.append((TEXT, start))
            counts.append(own)
            sequences.append(sequence)
        arrays, mask = self.batch(sequences)
        case = {"input_ids": arrays[1]}
        if self.chance(0.9):
            case["image_grid_thw"] = numpy.array(grids, "i8")
            if not shared:
                case["images_per_sample"] = numpy.array(counts, "i8")
        elif any(start in row for row in case["input_ids"]):
            case["input_ids"] = numpy.where(numpy.isin(case["input_ids"], (start, end)), 9, case["input_ids"])
        if mask is not None:
            case["attention_mask"] = mask
        return case

    def minicpm(self, config):
        mode = self.random.choice(["", "4x", "16x"])
        merge = 2 if (mode or config.downsample_mode) == "4x" else 4
        sizes = {IMAGE: [], VIDEO: []}

        def crop(kind, size, opening, closing):
            sizes[kind].append(size)
            return ([(TEXT, opening)] + [(kind, 7)] * (size[0] // merge * (size[1] // merge)) + [(TEXT, closing)])

        def picture(kind):
            thumbnail = [self.between(1, 6) * merge, self.between(1, 6) * merge]
            tokens = crop(kind, thumbnail, config.image_start_id, config.image_end_id)
            if self.chance(0.6):
                rows, columns = self.between(1, 3), self.between(1, 3)
                tile = [self.between(1, 5) * merge, self.between(1, 5) * merge]
                for row in range(rows):
                    tokens += [(TEXT, config.newline_id)] if row else []
                    for _ in range(columns):
                        tokens += crop(kind, tile, config.slice_start_id, config.slice_end_id)
            return tokens

        sequences = []
        for _ in range(self.between(1, 2)):
            sequence = self.text() if self.chance(0.8) else []
            for _ in range(self.between(0, 3)):
                kind = VIDEO if self.chance(0.4) else IMAGE
                for _ in range(self.between(1, 3)):
                    sequence += picture(kind)
                    sequence += [(TEXT, config.newline_id)] * self.between(0, 2)
                sequence += self.text() if self.chance(0.8) else []
            sequences.append(sequence or self.text())
        arrays, mask = self.batch(sequences)
        case = {"mm_token_type_ids": arrays[0], "input_ids": arrays[1]}
        case |= {"downsample_mode": str(mode)} if mode else {}
        case |= {"attention_mask": mask} if mask is not None else {}
        case |= {"target_sizes": numpy.array(sizes[IMAGE], "i8")} if sizes[IMAGE] else {}
        case |= {"target_sizes_videos": numpy.array(sizes[VIDEO], "i8")} if sizes[VIDEO] else {}
        return case

    def omni(self, config, merge, audio_tokens, interleave, newer):
        """`interleave(video tokens, audio tokens)` is the order in which a video and its audio are written."""
        both = self.chance(0.4)
        images, videos, seconds, audios, sequences = [], [], [], [], []
        image, video, audio = config.image_token_id, config.video_token_id, config.audio_token_id
        vision_start, audio_start = config.vision_start_token_id, config.audio_start_token_id

        def words():
            return [token[1] for token in self.text()]

        def sound():
            frames = self.between(8, 400)
            audios.append(frames)
            return [audio] * audio_tokens(frames)

        for _ in range(self.between(1, 2)):
            sequence = words() if self.chance(0.8) else []
            for _ in range(self.between(0, 3)):
                kind = self.random.choice(["image", "video", "audio"])
                if kind == "audio":
                    sequence += [audio_start, *sound(), 2999]
                elif kind == "image":
                    images.append(self.grid(merge))
                    sequence += [vision_start] + [image] * self.cells(images[-1], merge) + [2998]
                else:
                    videos.append(self.grid(merge, 1, 5))
                    seconds.append(float(self.random.choice([0.5, 1.0, 1 / 3, 0.08, 2.0, self.random.random() * 2])))
                    frames = [video] * self.cells(videos[-1], merge)
                    if both:
                        audio_of_video = sound()
                        sequence += [vision_start, audio_start]
                        sequence += interleave(frames, audio_of_video, videos[-1], seconds[-1], merge) + [2999, 2998]
                    else:
                        sequence += [vision_start] + frames + [2998]
                sequence += words() if self.chance(0.7) else []
            sequences.append([(token,) for token in sequence or words()])
        arrays, mask = self.batch(sequences, always_masked=True)
        case = {"input_ids": arrays[0], "attention_mask": mask, "use_audio_in_video": both}
        case |= {"image_grid_thw": numpy.array(images, "i8")} if images else {}
        case |= {"video_grid_thw": numpy.array(videos, "i8")} if videos else {}
        case |= {"second_per_grid_ts": numpy.array(seconds, "f4")} if videos else {}
        case |= {"audio_seqlens": numpy.array(audios, "i8")} if audios else {}
        return case

    @staticmethod
    def cells(grid, merge):
        return grid[0] * (grid[1] // merge) * (grid[2] // merge)
