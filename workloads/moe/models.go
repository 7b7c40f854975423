package moe

// shape is what of a model decides its expert traffic.
type shape struct {
	name                  string
	hidden, experts, topk int
}

// models are published shapes: hidden size, routed experts, experts per token. Sources:
// deepseek-v3 (R1 has the same), deepseek-v2 (236B), kimi-k2, qwen3-235b, minimax-m2, mixtral-*: the models'
// config.json on Hugging Face. glm-4.5: the config of GLM-4.7, same family. gpt-oss-120b: GptOssConfig of
// transformers. llama-4-*: Llama4TextConfig of transformers; Maverick's 128 experts from its name.
var models = []shape{
	{"deepseek-v3", 7168, 256, 8},
	{"deepseek-v2", 5120, 160, 6},
	{"kimi-k2", 7168, 384, 8},
	{"qwen3-235b", 4096, 128, 8},
	{"glm-4.5", 5120, 160, 8},
	{"minimax-m2", 3072, 256, 8},
	{"gpt-oss-120b", 2880, 128, 4},
	{"llama-4-maverick", 5120, 128, 1},
	{"llama-4-scout", 5120, 16, 1},
	{"mixtral-8x7b", 4096, 8, 2},
	{"mixtral-8x22b", 6144, 8, 2},
}

// custom names no shape: hidden, experts and topk must all be given.
const custom = "custom"

func modelNames() []string {
	var names []string
	for _, m := range models {
		names = append(names, m.name)
	}
	return append(names, custom)
}
