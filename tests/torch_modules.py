# ruff: noqa
"""Modules of PyTorch as people write them, for the tests of crossbench.from_torch."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class LuxMLP(nn.Module):
    """The network of LuxDL/Lux.jl 1657."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(13, 32),
            nn.LeakyReLU(),
            nn.Linear(32, 64),
            nn.LeakyReLU(),
            nn.Dropout(0.2),
            nn.Linear(64, 64),
            nn.LeakyReLU(),
            nn.Dropout(0.1),
            nn.Linear(64, 32),
            nn.LeakyReLU(),
            nn.Linear(32, 1),
        )

    def forward(self, x):
        return self.layers(x)


class FlaxCNN(nn.Module):
    """The network of google/flax 3551, in PyTorch."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding="same")
        self.conv2 = nn.Conv2d(32, 64, 3, padding="same")
        self.linear1 = nn.Linear(64 * 7 * 7, 256)
        self.linear2 = nn.Linear(256, 10)

    def forward(self, x):
        x = F.avg_pool2d(F.relu(self.conv1(x)), 2)
        x = F.avg_pool2d(F.relu(self.conv2(x)), 2)
        x = x.view(x.size(0), -1)
        return self.linear2(F.relu(self.linear1(x)))


class Generator(nn.Module):
    """A DCGAN's, as PyTorch's tutorial writes it, for small pictures."""

    def __init__(self, nz=32, ngf=16, nc=3):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf * 4, 4, 1, 0, bias=False),
            nn.BatchNorm2d(ngf * 4),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 4, ngf * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ngf * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 2, nc, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, z):
        return torch.flatten(self.main(z.view(-1, 32, 1, 1)), 1)


class Discriminator(nn.Module):
    """A DCGAN's, as PyTorch's tutorial writes it, for small pictures."""

    def __init__(self, nc=3, ndf=16):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(nc, ndf, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ndf * 2),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf * 2, 1, 4, 1, 0, bias=False),
        )

    def forward(self, x):
        return self.main(x).view(-1, 1)


class BasicBlock(nn.Module):
    """kuangliu/pytorch-cifar's."""

    expansion = 1

    def __init__(self, in_planes, planes, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(in_planes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, kernel_size=3, stride=1, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_planes != self.expansion * planes:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_planes, self.expansion * planes, 1, stride=stride, bias=False),
                nn.BatchNorm2d(self.expansion * planes),
            )

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        return F.relu(out)


class ResNet(nn.Module):
    """kuangliu/pytorch-cifar's."""

    def __init__(self, block=BasicBlock, num_blocks=(2, 2, 2, 2), num_classes=10, width=64):
        super().__init__()
        self.in_planes = width
        self.conv1 = nn.Conv2d(3, width, kernel_size=3, stride=1, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.layer1 = self._make_layer(block, width, num_blocks[0], stride=1)
        self.layer2 = self._make_layer(block, 2 * width, num_blocks[1], stride=2)
        self.layer3 = self._make_layer(block, 4 * width, num_blocks[2], stride=2)
        self.layer4 = self._make_layer(block, 8 * width, num_blocks[3], stride=2)
        self.linear = nn.Linear(8 * width * block.expansion, num_classes)

    def _make_layer(self, block, planes, num_blocks, stride):
        strides = [stride] + [1] * (num_blocks - 1)
        layers = []
        for stride in strides:
            layers.append(block(self.in_planes, planes, stride))
            self.in_planes = planes * block.expansion
        return nn.Sequential(*layers)

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.layer1(out)
        out = self.layer2(out)
        out = self.layer3(out)
        out = self.layer4(out)
        out = F.avg_pool2d(out, 4)
        out = out.view(out.size(0), -1)
        return self.linear(out)


class InvertedResidual(nn.Module):
    def __init__(self, inp, oup, stride, expand):
        super().__init__()
        hidden = inp * expand
        self.use_res = stride == 1 and inp == oup
        layers = []
        if expand != 1:
            layers += [nn.Conv2d(inp, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6()]
        layers += [
            nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden),
            nn.ReLU6(inplace=True),
            nn.Conv2d(hidden, oup, 1, bias=False),
            nn.BatchNorm2d(oup),
        ]
        self.conv = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.conv(x) if self.use_res else self.conv(x)


class MobileNetV2(nn.Module):
    """As torchvision writes it, with fewer blocks."""

    def __init__(self, num_classes=10):
        super().__init__()
        features = [nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU6(inplace=True)]
        inp = 8
        for expand, c, n, s in ((1, 4, 1, 1), (6, 6, 2, 2), (6, 8, 2, 1)):
            for i in range(n):
                features.append(InvertedResidual(inp, c, s if i == 0 else 1, expand))
                inp = c
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(inp, num_classes))

    def forward(self, x):
        x = self.features(x)
        x = nn.functional.adaptive_avg_pool2d(x, (1, 1))
        x = torch.flatten(x, 1)
        return self.classifier(x)


class DenseBlock(nn.Module):
    """As torchvision writes it: each layer takes the list of all features before it."""

    def __init__(self, channels=8, growth=4, layers=3):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(channels + i * growth),
                nn.ReLU(inplace=True),
                nn.Conv2d(channels + i * growth, growth, 3, padding=1, bias=False),
            )
            for i in range(layers)
        )
        self.head = nn.Linear(channels + layers * growth, 5)

    def forward(self, x):
        features = [x]
        for layer in self.layers:
            features.append(layer(torch.cat(features, 1)))
        return self.head(torch.cat(features, 1).mean((2, 3)))


class Inception(nn.Module):
    def __init__(self):
        super().__init__()
        self.branch1 = nn.Conv2d(6, 4, 1)
        self.branch3 = nn.Sequential(nn.Conv2d(6, 3, 1), nn.ReLU(), nn.Conv2d(3, 5, 3, padding=1))
        self.branch5 = nn.Sequential(nn.Conv2d(6, 2, 1), nn.ReLU(), nn.Conv2d(2, 4, 5, padding=2))
        self.pool = nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(6, 3, 1))
        self.fc = nn.Linear(16, 4)

    def forward(self, x):
        parts = [self.branch1(x), self.branch3(x), self.branch5(x), self.pool(x)]
        x = F.relu(torch.cat(parts, dim=1), inplace=True)
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class SqueezeExcite(nn.Module):
    def __init__(self, channels, squeezed):
        super().__init__()
        self.fc1 = nn.Conv2d(channels, squeezed, 1)
        self.fc2 = nn.Conv2d(squeezed, channels, 1)

    def forward(self, x):
        scale = F.adaptive_avg_pool2d(x, 1)
        scale = torch.sigmoid(self.fc2(F.silu(self.fc1(scale))))
        return x * scale


class LinearSqueezeExcite(nn.Module):
    def __init__(self, channels, squeezed):
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Sequential(
            nn.Linear(channels, squeezed), nn.ReLU(), nn.Linear(squeezed, channels), nn.Sigmoid()
        )

    def forward(self, x):
        b, c, _, _ = x.size()
        y = self.fc(self.pool(x).view(b, c)).view(b, c, 1, 1)
        return x * y.expand_as(x)


class MBConv(nn.Module):
    def __init__(self, squeeze=SqueezeExcite):
        super().__init__()
        self.expand = nn.Sequential(nn.Conv2d(4, 12, 1, bias=False), nn.BatchNorm2d(12), nn.SiLU())
        self.depthwise = nn.Sequential(
            nn.Conv2d(12, 12, 3, padding=1, groups=12, bias=False), nn.BatchNorm2d(12), nn.SiLU()
        )
        self.se = squeeze(12, 3)
        self.project = nn.Sequential(nn.Conv2d(12, 4, 1, bias=False), nn.BatchNorm2d(4))
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        y = self.project(self.se(self.depthwise(self.expand(x)))) + x
        return self.head(y.mean([2, 3]))


def double_conv(inp, out):
    return nn.Sequential(
        nn.Conv2d(inp, out, 3, padding=1),
        nn.BatchNorm2d(out),
        nn.ReLU(inplace=True),
        nn.Conv2d(out, out, 3, padding=1),
        nn.BatchNorm2d(out),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    """As milesial/Pytorch-UNet writes it, with two levels."""

    def __init__(self, classes=3):
        super().__init__()
        self.inc, self.down1, self.down2 = double_conv(2, 4), double_conv(4, 8), double_conv(8, 16)
        self.pool = nn.MaxPool2d(2)
        self.up1 = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.conv1 = double_conv(16, 8)
        self.up2 = nn.Upsample(scale_factor=2, mode="bilinear")
        self.conv2 = double_conv(12, 4)
        self.out = nn.Conv2d(4, classes, 1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down1(self.pool(x1))
        x3 = self.down2(self.pool(x2))
        x = self.conv1(torch.cat([x2, self.up1(x3)], dim=1))
        x = self.conv2(torch.cat([x1, self.up2(x)], dim=1))
        return self.out(x)


class ConvNeXtBlock(nn.Module):
    """facebookresearch/ConvNeXt's."""

    def __init__(self, dim=6, classes=4):
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, kernel_size=7, padding=3, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.pwconv1 = nn.Linear(dim, 4 * dim)
        self.act = nn.GELU()
        self.pwconv2 = nn.Linear(4 * dim, dim)
        self.gamma = nn.Parameter(0.1 * torch.ones(dim))
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        shortcut = x
        x = self.dwconv(x)
        x = x.permute(0, 2, 3, 1)
        x = self.norm(x)
        x = self.pwconv1(x)
        x = self.act(x)
        x = self.pwconv2(x)
        x = self.gamma * x
        x = x.permute(0, 3, 1, 2)
        x = shortcut + x
        return self.head(x.mean([-2, -1]))


class VGG(nn.Module):
    """As torchvision writes it, small."""

    def __init__(self):
        super().__init__()
        layers, inp = [], 3
        for v in (4, "M", 8, 8, "M"):
            if v == "M":
                layers.append(nn.MaxPool2d(kernel_size=2, stride=2))
            else:
                layers += [nn.Conv2d(inp, v, kernel_size=3, padding=1), nn.ReLU(inplace=True)]
                inp = v
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d((2, 2))
        self.classifier = nn.Sequential(
            nn.Linear(8 * 2 * 2, 12), nn.ReLU(True), nn.Dropout(), nn.Linear(12, 5)
        )

    def forward(self, x):
        x = self.avgpool(self.features(x))
        return self.classifier(torch.flatten(x, 1))


class Encoder(nn.Module):
    """nn.TransformerEncoder on token ids."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(30, 8)
        self.positions = nn.Parameter(0.02 * torch.randn(1, 6, 8))
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.positions
        return self.head(self.encoder(x).mean(1))


class TextCNN(nn.Module):
    """Kim's, with three widths."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(40, 7)
        self.convs = nn.ModuleList(nn.Conv1d(7, 5, width) for width in (2, 3, 4))
        self.dropout = nn.Dropout(0.5)
        self.fc = nn.Linear(15, 2)

    def forward(self, tokens):
        x = self.embedding(tokens).permute(0, 2, 1)
        pooled = [
            F.max_pool1d(F.relu(conv(x)), x.shape[2] - conv.kernel_size[0] + 1).squeeze(2)
            for conv in self.convs
        ]
        return self.fc(self.dropout(torch.cat(pooled, dim=1)))


class LSTMClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(40, 6)
        self.lstm = nn.LSTM(6, 5, num_layers=2, batch_first=True)
        self.fc = nn.Linear(5, 2)

    def forward(self, tokens):
        x = self.embedding(tokens)
        _, (h, _) = self.lstm(x)
        return self.fc(h[-1])


class RMSNorm(nn.Module):
    """Llama's."""

    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def _norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        return self._norm(x.float()).type_as(x) * self.weight


def precompute_freqs(dim, end, theta=10000.0):
    freqs = 1.0 / (theta ** (torch.arange(0, dim, 2)[: (dim // 2)].float() / dim))
    t = torch.arange(end)
    freqs = torch.outer(t, freqs).float()
    return torch.cos(freqs), torch.sin(freqs)


def apply_rotary_emb(xq, xk, freqs_cos, freqs_sin):
    """karpathy/llama2.c's."""
    xq_r, xq_i = xq.float().reshape(xq.shape[:-1] + (-1, 2)).unbind(-1)
    xk_r, xk_i = xk.float().reshape(xk.shape[:-1] + (-1, 2)).unbind(-1)
    freqs_cos = freqs_cos.view(1, xq_r.shape[1], 1, xq_r.shape[-1])
    freqs_sin = freqs_sin.view(1, xq_r.shape[1], 1, xq_r.shape[-1])
    xq_out_r = xq_r * freqs_cos - xq_i * freqs_sin
    xq_out_i = xq_r * freqs_sin + xq_i * freqs_cos
    xk_out_r = xk_r * freqs_cos - xk_i * freqs_sin
    xk_out_i = xk_r * freqs_sin + xk_i * freqs_cos
    xq_out = torch.stack([xq_out_r, xq_out_i], dim=-1).flatten(3)
    xk_out = torch.stack([xk_out_r, xk_out_i], dim=-1).flatten(3)
    return xq_out.type_as(xq), xk_out.type_as(xk)


def repeat_kv(x, n_rep):
    bs, slen, n_kv_heads, head_dim = x.shape
    if n_rep == 1:
        return x
    return (
        x[:, :, :, None, :]
        .expand(bs, slen, n_kv_heads, n_rep, head_dim)
        .reshape(bs, slen, n_kv_heads * n_rep, head_dim)
    )


class LlamaAttention(nn.Module):
    def __init__(self, dim, heads, kv_heads):
        super().__init__()
        self.heads, self.kv_heads, self.width = heads, kv_heads, dim // heads
        self.wq = nn.Linear(dim, heads * self.width, bias=False)
        self.wk = nn.Linear(dim, kv_heads * self.width, bias=False)
        self.wv = nn.Linear(dim, kv_heads * self.width, bias=False)
        self.wo = nn.Linear(heads * self.width, dim, bias=False)

    def forward(self, x, freqs_cos, freqs_sin):
        bsz, seqlen, _ = x.shape
        xq, xk, xv = self.wq(x), self.wk(x), self.wv(x)
        xq = xq.view(bsz, seqlen, self.heads, self.width)
        xk = xk.view(bsz, seqlen, self.kv_heads, self.width)
        xv = xv.view(bsz, seqlen, self.kv_heads, self.width)
        xq, xk = apply_rotary_emb(xq, xk, freqs_cos, freqs_sin)
        xk = repeat_kv(xk, self.heads // self.kv_heads)
        xv = repeat_kv(xv, self.heads // self.kv_heads)
        xq, xk, xv = xq.transpose(1, 2), xk.transpose(1, 2), xv.transpose(1, 2)
        output = F.scaled_dot_product_attention(xq, xk, xv, is_causal=True)
        output = output.transpose(1, 2).contiguous().view(bsz, seqlen, -1)
        return self.wo(output)


class Llama(nn.Module):
    """karpathy/llama2.c's, with one block."""

    def __init__(self, vocab=32, dim=16, heads=4, kv_heads=2, hidden=24, length=7):
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocab, dim)
        self.attention_norm, self.ffn_norm, self.norm = RMSNorm(dim), RMSNorm(dim), RMSNorm(dim)
        self.attention = LlamaAttention(dim, heads, kv_heads)
        self.w1 = nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)
        self.w3 = nn.Linear(dim, hidden, bias=False)
        self.output = nn.Linear(dim, vocab, bias=False)
        self.tok_embeddings.weight = self.output.weight
        cos, sin = precompute_freqs(dim // heads, length)
        self.register_buffer("freqs_cos", cos, persistent=False)
        self.register_buffer("freqs_sin", sin, persistent=False)

    def forward(self, tokens):
        _, seqlen = tokens.shape
        h = self.tok_embeddings(tokens)
        h = h + self.attention(
            self.attention_norm(h), self.freqs_cos[:seqlen], self.freqs_sin[:seqlen]
        )
        x = self.ffn_norm(h)
        h = h + self.w2(F.silu(self.w1(x)) * self.w3(x))
        return self.output(self.norm(h))


class CausalSelfAttention(nn.Module):
    """karpathy/minGPT's, with the softmax written out."""

    def __init__(self, n_embd=8, n_head=2, block_size=5):
        super().__init__()
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)
        mask = torch.tril(torch.ones(block_size, block_size))
        self.register_buffer("bias", mask.view(1, 1, block_size, block_size))
        self.n_head, self.n_embd = n_head, n_embd

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        att = F.softmax(att, dim=-1)
        y = att @ v
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.c_proj(y)


class GPT(nn.Module):
    """karpathy/minGPT's, with one block."""

    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(20, 8), nn.Embedding(5, 8)
        self.ln_1, self.ln_2, self.ln_f = nn.LayerNorm(8), nn.LayerNorm(8), nn.LayerNorm(8)
        self.attn = CausalSelfAttention()
        self.mlp = nn.Sequential(nn.Linear(8, 32), nn.GELU(approximate="tanh"), nn.Linear(32, 8))
        self.lm_head = nn.Linear(8, 20, bias=False)

    def forward(self, idx):
        device = idx.device
        b, t = idx.size()
        pos = torch.arange(0, t, dtype=torch.long, device=device).unsqueeze(0)
        x = self.wte(idx) + self.wpe(pos)
        x = x + self.attn(self.ln_1(x))
        x = x + self.mlp(self.ln_2(x))
        return self.lm_head(self.ln_f(x))


class WaveCnn(nn.Module):
    """A 1-D CNN of a recording, as tutorials on audio and time series write it."""

    def __init__(self, channels=6, classes=4):
        super().__init__()
        self.conv1 = nn.Conv1d(1, channels, 8, stride=4)
        self.bn1 = nn.BatchNorm1d(channels)
        self.pool1 = nn.MaxPool1d(3, 2, 1)
        self.conv2 = nn.Conv1d(channels, 2 * channels, 3, padding=1)
        self.bn2 = nn.BatchNorm1d(2 * channels)
        self.fc = nn.Linear(2 * channels * 5, classes)

    def forward(self, x):
        x = self.pool1(F.relu(self.bn1(self.conv1(x))))
        x = F.avg_pool1d(F.relu(self.bn2(self.conv2(x))), 2)
        x = F.adaptive_avg_pool1d(x, 5)
        return self.fc(x.flatten(1))


class Mixer(nn.Module):
    """A block of MLP-Mixer (Tolstikhin et al., 2021)."""

    def __init__(self, width=6, places=4, classes=3):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens = nn.Sequential(nn.Linear(places, 5), nn.GELU(), nn.Linear(5, places))
        self.channels = nn.Sequential(nn.Linear(width, 8), nn.GELU(), nn.Linear(8, width))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        x = x + self.channels(self.norm2(x))
        return self.head(x.mean(dim=1))


MODULES = {
    "lux_mlp": (LuxMLP, (13,)),
    "flax_cnn": (FlaxCNN, (1, 28, 28)),
    "generator": (Generator, (32,)),
    "discriminator": (Discriminator, (3, 16, 16)),
    "resnet": (lambda: ResNet(width=4), (3, 32, 32)),
    "mobilenet": (MobileNetV2, (3, 32, 32)),
    "densenet": (DenseBlock, (8, 6, 6)),
    "inception": (Inception, (6, 7, 7)),
    "mbconv": (MBConv, (4, 8, 8)),
    "mbconv_linear": (lambda: MBConv(LinearSqueezeExcite), (4, 8, 8)),
    "unet": (UNet, (2, 16, 16)),
    "convnext": (ConvNeXtBlock, (6, 9, 9)),
    "vgg": (VGG, (3, 16, 16)),
    "encoder": (Encoder, (6,)),
    "text_cnn": (TextCNN, (9,)),
    "lstm": (LSTMClassifier, (7,)),
    "llama": (Llama, (7,)),
    "gpt": (GPT, (5,)),
    "wave_cnn": (WaveCnn, (1, 164)),
    "mixer": (Mixer, (3, 8, 8)),
}
"""Makes each module, with the shape of an example."""
