"""YOLOv3 (Redmon and Farhadi, 2018): Darknet-53 with predictions at three scales. Grids are kept while the size stays,
targets are matched to anchors in a Python loop, and non-maximum suppression goes on until nothing is left."""

import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 20
WIDTH = 16  # of the first convolution; 32 in the original
ANCHORS = (((116, 90), (156, 198), (373, 326)), ((30, 61), (62, 45), (59, 119)), ((10, 13), (16, 30), (33, 23)))
MASTER = 416  # the image size that the anchors are given for

# (channels / 32, kernel, stride), ("B", repeats): residual blocks, "S": a prediction, "U": twice the size, joined with
# an earlier result
ARCHITECTURE = (
    (1, 3, 1), (2, 3, 2), ("B", 1), (4, 3, 2), ("B", 2), (8, 3, 2), ("B", 8), (16, 3, 2), ("B", 8), (32, 3, 2),
    ("B", 4),
    (16, 1, 1), (32, 3, 1), "S", (8, 1, 1), "U", (8, 1, 1), (16, 3, 1), "S", (4, 1, 1), "U", (4, 1, 1), (8, 3, 1), "S",
)  # fmt: skip


class CNNBlock(nn.Module):
    def __init__(self, in_channels, out_channels, bn_act=True, **kwargs):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, bias=not bn_act, **kwargs)
        self.bn = nn.BatchNorm2d(out_channels)
        self.leaky = nn.LeakyReLU(0.1)
        self.use_bn_act = bn_act

    def forward(self, x):
        if self.use_bn_act:
            return self.leaky(self.bn(self.conv(x)))
        return self.conv(x)


class ResidualBlock(nn.Module):
    def __init__(self, channels, use_residual=True, num_repeats=1):
        super().__init__()
        self.layers = nn.ModuleList()
        for _ in range(num_repeats):
            self.layers.append(nn.Sequential(CNNBlock(channels, channels // 2, kernel_size=1),
                                             CNNBlock(channels // 2, channels, kernel_size=3, padding=1)))
        self.use_residual = use_residual
        self.num_repeats = num_repeats

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x) if self.use_residual else layer(x)
        return x


class YOLOLayer(nn.Module):
    """From raw predictions to boxes in pixels; training wants the raw ones too."""

    def __init__(self, anchors):
        super().__init__()
        self.anchors = torch.tensor(anchors, dtype=torch.float32)
        self.grid_size = 0
        self.img_dim = 0

    def compute_grid_offsets(self, grid_size, img_dim):
        self.grid_size, self.img_dim = grid_size, img_dim
        g = self.grid_size
        self.stride = self.img_dim / self.grid_size
        self.grid_x = torch.arange(g).repeat(g, 1).view([1, 1, g, g]).float()
        self.grid_y = torch.arange(g).repeat(g, 1).t().view([1, 1, g, g]).float()
        self.scaled_anchors = self.anchors * (img_dim / MASTER) / self.stride
        self.anchor_w = self.scaled_anchors[:, 0:1].view((1, 3, 1, 1))
        self.anchor_h = self.scaled_anchors[:, 1:2].view((1, 3, 1, 1))

    def forward(self, x, img_dim):
        num_samples, grid_size = x.size(0), x.size(2)
        prediction = x.view(num_samples, 3, CLASSES + 5, grid_size, grid_size).permute(0, 1, 3, 4, 2).contiguous()
        xs, ys = torch.sigmoid(prediction[..., 0]), torch.sigmoid(prediction[..., 1])
        w, h = prediction[..., 2], prediction[..., 3]
        pred_conf = torch.sigmoid(prediction[..., 4])
        pred_cls = torch.sigmoid(prediction[..., 5:])
        if grid_size != self.grid_size or img_dim != self.img_dim:
            self.compute_grid_offsets(grid_size, img_dim)
        pred_boxes = torch.empty(prediction[..., :4].shape)
        pred_boxes[..., 0] = xs.detach() + self.grid_x
        pred_boxes[..., 1] = ys.detach() + self.grid_y
        pred_boxes[..., 2] = torch.exp(w.detach()) * self.anchor_w
        pred_boxes[..., 3] = torch.exp(h.detach()) * self.anchor_h
        output = torch.cat(
            (pred_boxes.view(num_samples, -1, 4) * self.stride, pred_conf.view(num_samples, -1, 1),
             pred_cls.view(num_samples, -1, CLASSES)), -1
        )
        return output, prediction


class ScalePrediction(nn.Module):
    def __init__(self, in_channels, anchors):
        super().__init__()
        self.pred = nn.Sequential(
            CNNBlock(in_channels, 2 * in_channels, kernel_size=3, padding=1),
            CNNBlock(2 * in_channels, 3 * (CLASSES + 5), bn_act=False, kernel_size=1)
        )
        self.decode = YOLOLayer(anchors)

    def forward(self, x, img_dim):
        return self.decode(self.pred(x), img_dim)


class YOLOv3(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList()
        in_channels, anchors = 3, iter(ANCHORS)
        for module in ARCHITECTURE:
            if module == "S":
                self.layers += [
                    ResidualBlock(in_channels, use_residual=False, num_repeats=1),
                    CNNBlock(in_channels, in_channels // 2, kernel_size=1),
                    ScalePrediction(in_channels // 2, next(anchors)),
                ]
                in_channels = in_channels // 2
            elif module == "U":
                self.layers.append(nn.Upsample(scale_factor=2))
                in_channels = in_channels * 3
            elif module[0] == "B":
                self.layers.append(ResidualBlock(in_channels, num_repeats=module[1]))
            else:
                units, kernel_size, stride = module
                self.layers.append(CNNBlock(in_channels, units * WIDTH, kernel_size=kernel_size, stride=stride,
                                            padding=1 if kernel_size == 3 else 0))
                in_channels = units * WIDTH

    def forward(self, x):
        outputs, raw, route_connections = [], [], []
        img_dim = x.size(2)
        for layer in self.layers:
            if isinstance(layer, ScalePrediction):
                output, prediction = layer(x, img_dim)
                outputs.append(output)
                raw.append(prediction)
                continue
            x = layer(x)
            if isinstance(layer, ResidualBlock) and layer.num_repeats == 8:
                route_connections.append(x)
            elif isinstance(layer, nn.Upsample):
                x = torch.cat([x, route_connections[-1]], dim=1)
                route_connections.pop()
        return raw if self.training else torch.cat(outputs, 1)


def xywh2xyxy(x):
    y = x.new_empty(x.shape)
    y[..., 0] = x[..., 0] - x[..., 2] / 2
    y[..., 1] = x[..., 1] - x[..., 3] / 2
    y[..., 2] = x[..., 0] + x[..., 2] / 2
    y[..., 3] = x[..., 1] + x[..., 3] / 2
    return y


def bbox_iou(box1, box2):
    left, top = torch.max(box1[:, 0], box2[:, 0]), torch.max(box1[:, 1], box2[:, 1])
    right, bottom = torch.min(box1[:, 2], box2[:, 2]), torch.min(box1[:, 3], box2[:, 3])
    inter = torch.clamp(right - left, min=0) * torch.clamp(bottom - top, min=0)
    area1 = (box1[:, 2] - box1[:, 0]) * (box1[:, 3] - box1[:, 1])
    area2 = (box2[:, 2] - box2[:, 0]) * (box2[:, 3] - box2[:, 1])
    return inter / (area1 + area2 - inter + 1e-16)


def non_max_suppression(prediction, conf_thres=0.5, nms_thres=0.4, most=60):
    """For each image boxes (x1, y1, x2, y2, confidence, class score, class): overlapping ones of a class are merged by
    their confidences."""
    prediction[..., :4] = xywh2xyxy(prediction[..., :4])
    output = [None for _ in range(len(prediction))]
    for image_i, image_pred in enumerate(prediction):
        image_pred = image_pred[image_pred[:, 4] >= conf_thres]
        if not image_pred.size(0):
            continue
        score = image_pred[:, 4] * image_pred[:, 5:].max(1)[0]
        image_pred = image_pred[(-score).argsort()][:most]
        class_confs, class_preds = image_pred[:, 5:].max(1, keepdim=True)
        detections = torch.cat((image_pred[:, :5], class_confs.float(), class_preds.float()), 1)
        keep_boxes = []
        while detections.size(0):
            large_overlap = bbox_iou(detections[0, :4].unsqueeze(0), detections[:, :4]) > nms_thres
            label_match = detections[0, -1] == detections[:, -1]
            invalid = large_overlap & label_match
            weights = detections[invalid, 4:5]
            detections[0, :4] = (weights * detections[invalid, :4]).sum(0) / weights.sum()
            keep_boxes += [detections[0]]
            detections = detections[~invalid]
        if keep_boxes:
            output[image_i] = torch.stack(keep_boxes)
    return output


def wh_iou(w1, h1, w2, h2):
    inter = min(w1, w2) * min(h1, h2)
    return inter / (w1 * h1 + w2 * h2 - inter)


def build_targets(raw, targets, img_dim):
    """One grid per scale of (x, y, w, h, objectness, class); a box belongs to its best anchor of each scale, good other
    ones are left out (-1)."""
    found = []
    for prediction, anchors in zip(raw, ANCHORS):
        n, a, g = prediction.shape[:3]
        target = torch.zeros(n, a, g, g, 6)
        scaled = [(w * g / MASTER, h * g / MASTER) for w, h in anchors]
        for image, boxes in enumerate(targets):
            for x, y, w, h, label in boxes.tolist():
                gx, gy, gw, gh = x * g, y * g, w * g, h * g
                overlap = [wh_iou(gw, gh, aw, ah) for aw, ah in scaled]
                best = max(range(a), key=overlap.__getitem__)
                i, j = int(gx), int(gy)
                for k in range(a):
                    if k == best and target[image, k, j, i, 4] != 1:
                        wh = torch.log(torch.tensor([gw / scaled[k][0], gh / scaled[k][1]]) + 1e-16)
                        target[image, k, j, i] = torch.tensor([gx - i, gy - j, wh[0].item(), wh[1].item(), 1.0, label])
                    elif overlap[k] > 0.5 and target[image, k, j, i, 4] == 0:
                        target[image, k, j, i, 4] = -1
        found.append(target)
    return found


def yolo_loss(prediction, target):
    obj, noobj = target[..., 4] == 1, target[..., 4] == 0
    loss = 0.5 * F.binary_cross_entropy_with_logits(prediction[..., 4][noobj], target[..., 4][noobj])
    if obj.any():
        chosen, wanted = prediction[obj], target[obj]
        loss = loss + F.mse_loss(torch.sigmoid(chosen[:, 0:2]),
                                 wanted[:, 0:2]) + F.mse_loss(chosen[:, 2:4], wanted[:, 2:4])
        loss = loss + F.binary_cross_entropy_with_logits(chosen[:, 4], wanted[:, 4])
        loss = loss + F.binary_cross_entropy_with_logits(chosen[:, 5:], F.one_hot(wanted[:, 5].long(), CLASSES).float())
    return loss


@torch.no_grad()
def build():
    """The statistics of a first batch and rare, decided predictions: an untrained network would call everything an
    object with probability one half."""
    model = YOLOv3()
    for layer in model.layers:
        if isinstance(layer, ScalePrediction):
            last = layer.pred[-1].conv
            nn.init.normal_(last.weight, 0.0, 2.0 / last.in_channels**0.5)
            last.bias.zero_().view(3, CLASSES + 5)[:, 4] = -4.0
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
    model(torch.randn(4, 3, 128, 128))
    for norm in norms:
        norm.momentum = 0.1
    return model


def inputs(seed):
    """Images with boxes (x, y, w, h as parts of the image, class); the image size changes as in multi-scale
    training."""
    generator = torch.Generator().manual_seed(seed)
    sizes = (128, 160, 192)
    while True:
        size = sizes[int(torch.randint(0, len(sizes), (), generator=generator))]
        boxes = torch.rand(int(torch.randint(1, 4, (), generator=generator)), 5, generator=generator)
        boxes[:, :2] = 0.1 + 0.8 * boxes[:, :2]
        boxes[:, 2:4] = 0.1 + 0.5 * boxes[:, 2:4]
        boxes[:, 4] = (boxes[:, 4] * CLASSES).floor()
        yield torch.randn(1, 3, size, size, generator=generator), [boxes]


@torch.no_grad()
def infer(model, batch):
    images, _ = batch
    model.eval()
    return non_max_suppression(model(images))


def optimizer(model):
    return torch.optim.Adam(model.parameters(), lr=1e-4)


def train(model, optim, batch):
    images, boxes = batch
    images, boxes = torch.cat([images, images.flip(3)]), boxes * 2
    boxes[1] = boxes[1] * torch.tensor([-1.0, 1.0, 1.0, 1.0, 1.0]) + torch.tensor([1.0, 0.0, 0.0, 0.0, 0.0])
    model.train()
    optim.zero_grad()
    raw = model(images)
    loss = sum(yolo_loss(prediction, target)
               for prediction, target in zip(raw, build_targets(raw, boxes, images.size(2))))
    loss.backward()
    optim.step()
    return loss.item()


def main():
    torch.manual_seed(0)
    model = build()
    optim = optimizer(model)
    for step, batch in zip(range(5), inputs(0)):
        print(f"step {step}: loss {train(model, optim, batch):.4f}, images of {batch[0].size(2)}")
    found = infer(model, batch)[0]
    print("no boxes" if found is None else f"{len(found)} boxes, the first: {[round(v, 2) for v in found[0].tolist()]}")


if __name__ == "__main__":
    main()
