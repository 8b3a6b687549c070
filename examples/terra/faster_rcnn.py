"""Faster R-CNN (Ren et al., NeurIPS 2015) on VGG-16: anchors, proposals, their matching and sampling, and non-maximum
suppression are NumPy, each region of interest is pooled by itself. The tensors become arrays and arrays become tensors
in the middle of the forward pass."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 20
WIDTH = 32  # of the first convolutions; 64 in the original
STRIDE = 16


# ------------------------------------------------------------------------------------------------- boxes (y0, x0, y1,
# x1)


def loc2bbox(src, loc):
    height, width = src[:, 2] - src[:, 0], src[:, 3] - src[:, 1]
    ctr_y, ctr_x = src[:, 0] + 0.5 * height, src[:, 1] + 0.5 * width
    dy, dx, dh, dw = loc[:, 0::4], loc[:, 1::4], loc[:, 2::4], loc[:, 3::4]
    cy = dy * height[:, None] + ctr_y[:, None]
    cx = dx * width[:, None] + ctr_x[:, None]
    h = np.exp(dh) * height[:, None]
    w = np.exp(dw) * width[:, None]
    dst = np.zeros(loc.shape, dtype=loc.dtype)
    dst[:, 0::4], dst[:, 1::4] = cy - 0.5 * h, cx - 0.5 * w
    dst[:, 2::4], dst[:, 3::4] = cy + 0.5 * h, cx + 0.5 * w
    return dst


def bbox2loc(src, dst):
    eps = np.finfo(np.float32).eps
    height, width = np.maximum(src[:, 2] - src[:, 0], eps), np.maximum(src[:, 3] - src[:, 1], eps)
    ctr_y, ctr_x = src[:, 0] + 0.5 * (src[:, 2] - src[:, 0]), src[:, 1] + 0.5 * (src[:, 3] - src[:, 1])
    base_h, base_w = dst[:, 2] - dst[:, 0], dst[:, 3] - dst[:, 1]
    base_y, base_x = dst[:, 0] + 0.5 * base_h, dst[:, 1] + 0.5 * base_w
    return np.stack(((base_y - ctr_y) / height, (base_x - ctr_x) / width, np.log(base_h / height),
                     np.log(base_w / width)), axis=1).astype(np.float32)


def bbox_iou(a, b):
    tl = np.maximum(a[:, None, :2], b[:, :2])
    br = np.minimum(a[:, None, 2:], b[:, 2:])
    area_i = np.prod(br - tl, axis=2) * (tl < br).all(axis=2)
    area_a, area_b = np.prod(a[:, 2:] - a[:, :2], axis=1), np.prod(b[:, 2:] - b[:, :2], axis=1)
    return area_i / (area_a[:, None] + area_b - area_i)


def nms(bbox, score, thresh, limit=None):
    order = score.argsort()[::-1]
    keep = []
    while len(order) and (limit is None or len(keep) < limit):
        best, order = order[0], order[1:]
        keep.append(best)
        order = order[bbox_iou(bbox[best : best + 1], bbox[order])[0] < thresh]
    return np.array(keep, dtype=np.int64)


def generate_anchor_base(base_size=STRIDE, ratios=(0.5, 1, 2), anchor_scales=(2, 4, 8)):
    py = px = base_size / 2.0
    anchor_base = np.zeros((len(ratios) * len(anchor_scales), 4), dtype=np.float32)
    for i, ratio in enumerate(ratios):
        for j, scale in enumerate(anchor_scales):
            h, w = base_size * scale * np.sqrt(ratio), base_size * scale * np.sqrt(1.0 / ratio)
            anchor_base[i * len(anchor_scales) + j] = py - h / 2, px - w / 2, py + h / 2, px + w / 2
    return anchor_base


def enumerate_shifted_anchor(anchor_base, feat_stride, height, width):
    shift_y, shift_x = np.arange(0, height * feat_stride, feat_stride), np.arange(0, width * feat_stride, feat_stride)
    shift_x, shift_y = np.meshgrid(shift_x, shift_y)
    shift = np.stack((shift_y.ravel(), shift_x.ravel(), shift_y.ravel(), shift_x.ravel()), axis=1)
    return (anchor_base[None] + shift[:, None]).reshape(-1, 4).astype(np.float32)


# ------------------------------------------------------------------------------------------------- proposals and
# targets


class ProposalCreator:
    def __init__(self, parent_model, nms_thresh=0.7, train_pre=200, train_post=48, test_pre=120, test_post=24,
                 min_size=8):
        self.parent_model = parent_model
        self.nms_thresh, self.min_size = nms_thresh, min_size
        self.train, self.test = (train_pre, train_post), (test_pre, test_post)

    def __call__(self, loc, score, anchor, img_size, scale=1.0):
        pre, post = self.train if self.parent_model.training else self.test
        roi = loc2bbox(anchor, loc)
        roi[:, 0:4:2] = np.clip(roi[:, 0:4:2], 0, img_size[0])
        roi[:, 1:4:2] = np.clip(roi[:, 1:4:2], 0, img_size[1])
        hs, ws = roi[:, 2] - roi[:, 0], roi[:, 3] - roi[:, 1]
        keep = np.where((hs >= self.min_size * scale) & (ws >= self.min_size * scale))[0]
        roi, score = roi[keep], score[keep]
        order = score.ravel().argsort()[::-1][:pre]
        roi, score = roi[order], score[order]
        return roi[nms(roi, score, self.nms_thresh, post)]


class ProposalTargetCreator:
    def __init__(self, n_sample=32, pos_ratio=0.25, pos_iou_thresh=0.5, neg_iou_thresh=0.5):
        self.n_sample, self.pos_ratio = n_sample, pos_ratio
        self.pos_iou_thresh, self.neg_iou_thresh = pos_iou_thresh, neg_iou_thresh

    def __call__(self, roi, bbox, label):
        roi = np.concatenate((roi, bbox), axis=0)
        iou = bbox_iou(roi, bbox)
        gt_assignment, max_iou = iou.argmax(axis=1), iou.max(axis=1)
        gt_roi_label = label[gt_assignment] + 1  # 0 is the background
        pos_index = np.where(max_iou >= self.pos_iou_thresh)[0]
        pos_count = int(min(np.round(self.n_sample * self.pos_ratio), pos_index.size))
        if pos_index.size > 0:
            pos_index = np.random.choice(pos_index, size=pos_count, replace=False)
        neg_index = np.where(max_iou < self.neg_iou_thresh)[0]
        neg_count = int(min(self.n_sample - pos_count, neg_index.size))
        if neg_index.size > 0:
            neg_index = np.random.choice(neg_index, size=neg_count, replace=False)
        keep_index = np.append(pos_index, neg_index)
        gt_roi_label = gt_roi_label[keep_index]
        gt_roi_label[pos_count:] = 0
        sample_roi = roi[keep_index]
        gt_roi_loc = bbox2loc(sample_roi, bbox[gt_assignment[keep_index]])
        return sample_roi, gt_roi_loc / np.array((0.1, 0.1, 0.2, 0.2), np.float32), gt_roi_label


class AnchorTargetCreator:
    def __init__(self, n_sample=64, pos_iou_thresh=0.7, neg_iou_thresh=0.3, pos_ratio=0.5):
        self.n_sample, self.pos_ratio = n_sample, pos_ratio
        self.pos_iou_thresh, self.neg_iou_thresh = pos_iou_thresh, neg_iou_thresh

    def __call__(self, bbox, anchor, img_size):
        H, W = img_size
        inside = np.where((anchor[:, 0] >= 0) & (anchor[:, 1] >= 0) & (anchor[:, 2] <= H) & (anchor[:, 3] <= W))[0]
        ious = bbox_iou(anchor[inside], bbox)
        argmax_ious, max_ious = ious.argmax(axis=1), ious.max(axis=1)
        inside_label = np.full(len(inside), -1, dtype=np.int64)
        inside_label[max_ious < self.neg_iou_thresh] = 0
        inside_label[np.where(ious == ious.max(axis=0))[0]] = 1
        inside_label[max_ious >= self.pos_iou_thresh] = 1
        for value, count in ((1, int(self.pos_ratio * self.n_sample)), (0, self.n_sample - np.sum(inside_label == 1))):
            index = np.where(inside_label == value)[0]
            if len(index) > count:
                inside_label[np.random.choice(index, size=len(index) - count, replace=False)] = -1
        label, loc = np.full(len(anchor), -1, dtype=np.int64), np.zeros((len(anchor), 4), dtype=np.float32)
        label[inside] = inside_label
        loc[inside] = bbox2loc(anchor[inside], bbox[argmax_ious])
        return loc, label


# ------------------------------------------------------------------------------------------------- networks


def vgg16():
    layers, channels = [], 3
    for v in (1, 1, "M", 2, 2, "M", 4, 4, 4, "M", 8, 8, 8, "M", 8, 8, 8):
        if v == "M":
            layers.append(nn.MaxPool2d(kernel_size=2, stride=2))
        else:
            layers += [nn.Conv2d(channels, v * WIDTH, 3, padding=1), nn.ReLU(inplace=True)]
            channels = v * WIDTH
    return nn.Sequential(*layers)


def normal_init(m, mean, stddev):
    m.weight.data.normal_(mean, stddev)
    m.bias.data.zero_()


class RegionProposalNetwork(nn.Module):
    def __init__(self, in_channels, mid_channels):
        super().__init__()
        self.anchor_base = generate_anchor_base()
        self.proposal_layer = ProposalCreator(self)
        n_anchor = self.anchor_base.shape[0]
        self.conv1 = nn.Conv2d(in_channels, mid_channels, 3, 1, 1)
        self.score = nn.Conv2d(mid_channels, n_anchor * 2, 1, 1, 0)
        self.loc = nn.Conv2d(mid_channels, n_anchor * 4, 1, 1, 0)
        normal_init(self.score, 0, 0.5)  # scores as far apart as trained ones
        normal_init(self.loc, 0, 0.05)

    def forward(self, x, img_size, scale=1.0):
        n, _, hh, ww = x.shape
        anchor = enumerate_shifted_anchor(self.anchor_base, STRIDE, hh, ww)
        n_anchor = anchor.shape[0] // (hh * ww)
        h = F.relu(self.conv1(x))
        rpn_locs = self.loc(h).permute(0, 2, 3, 1).contiguous().view(n, -1, 4)
        rpn_scores = self.score(h).permute(0, 2, 3, 1).contiguous()
        rpn_softmax_scores = F.softmax(rpn_scores.view(n, hh, ww, n_anchor, 2), dim=4)
        rpn_fg_scores = rpn_softmax_scores[:, :, :, :, 1].contiguous().view(n, -1)
        rpn_scores = rpn_scores.view(n, -1, 2)
        rois, roi_indices = [], []
        for i in range(n):
            roi = self.proposal_layer(rpn_locs[i].detach().cpu().numpy(), rpn_fg_scores[i].detach().cpu().numpy(),
                                      anchor, img_size, scale=scale)
            rois.append(roi)
            roi_indices.append(i * np.ones((len(roi),), dtype=np.int32))
        return rpn_locs, rpn_scores, np.concatenate(rois, axis=0), np.concatenate(roi_indices, axis=0), anchor


class RoIPool(nn.Module):
    def __init__(self, output_size, spatial_scale):
        super().__init__()
        self.output_size, self.spatial_scale = output_size, spatial_scale

    def forward(self, x, indices_and_rois):
        pooled = []
        height, width = x.shape[2:]
        for index, y0, x0, y1, x1 in indices_and_rois.tolist():
            top, left = min(int(round(y0 * self.spatial_scale)), height - 1), min(int(round(x0 * self.spatial_scale)),
                                                                                  width - 1)
            bottom, right = max(int(round(y1 * self.spatial_scale)), top + 1), max(int(round(x1 * self.spatial_scale)),
                                                                                   left + 1)
            region = x[int(index)][:, top : min(bottom, height), left : min(right, width)]
            pooled.append(F.adaptive_max_pool2d(region, self.output_size))
        return torch.stack(pooled)


class VGG16RoIHead(nn.Module):
    def __init__(self, n_class, roi_size, spatial_scale, channels, hidden):
        super().__init__()
        self.classifier = nn.Sequential(nn.Linear(channels * roi_size * roi_size, hidden), nn.ReLU(True),
                                        nn.Linear(hidden, hidden), nn.ReLU(True))
        self.cls_loc = nn.Linear(hidden, n_class * 4)
        self.score = nn.Linear(hidden, n_class)
        normal_init(self.cls_loc, 0, 0.05)
        normal_init(self.score, 0, 0.5)
        self.roi = RoIPool((roi_size, roi_size), spatial_scale)

    def forward(self, x, rois, roi_indices):
        roi_indices = torch.from_numpy(roi_indices).float()
        rois = torch.from_numpy(rois).float()
        pool = self.roi(x, torch.cat([roi_indices[:, None], rois], dim=1))
        pool = pool.view(pool.size(0), -1)
        fc7 = self.classifier(pool)
        return self.cls_loc(fc7), self.score(fc7)


class FasterRCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.extractor = vgg16()
        self.rpn = RegionProposalNetwork(8 * WIDTH, 8 * WIDTH)
        self.head = VGG16RoIHead(CLASSES + 1, 7, 1 / STRIDE, 8 * WIDTH, 512)
        for m in self.extractor:
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, nonlinearity="relu")
        self.proposal_target_creator = ProposalTargetCreator()
        self.anchor_target_creator = AnchorTargetCreator()
        self.loc_normalize_std = (0.1, 0.1, 0.2, 0.2)
        self.nms_thresh, self.score_thresh = 0.3, 0.05

    def forward(self, x, scale=1.0):
        img_size = x.shape[2:]
        h = self.extractor(x)
        _, _, rois, roi_indices, _ = self.rpn(h, img_size, scale)
        roi_cls_locs, roi_scores = self.head(h, rois, roi_indices)
        return roi_cls_locs, roi_scores, rois, roi_indices

    def suppress(self, raw_cls_bbox, raw_prob):
        bbox, label, score = [], [], []
        for cls in range(1, CLASSES + 1):
            cls_bbox = raw_cls_bbox.reshape((-1, CLASSES + 1, 4))[:, cls, :]
            prob = raw_prob[:, cls]
            mask = prob > self.score_thresh
            cls_bbox, prob = cls_bbox[mask], prob[mask]
            keep = nms(cls_bbox, prob, self.nms_thresh)
            bbox.append(cls_bbox[keep])
            label.append((cls - 1) * np.ones((len(keep),)))
            score.append(prob[keep])
        return (np.concatenate(bbox).astype(np.float32), np.concatenate(label).astype(np.int32),
                np.concatenate(score).astype(np.float32))

    def predict(self, img):
        roi_cls_loc, roi_scores, rois, _ = self(img)
        size = img.shape[2:]
        roi = torch.from_numpy(rois)
        std = torch.tensor(self.loc_normalize_std).repeat(CLASSES + 1)[None]
        roi_cls_loc = (roi_cls_loc * std).view(-1, CLASSES + 1, 4)
        roi = roi.view(-1, 1, 4).expand_as(roi_cls_loc)
        cls_bbox = loc2bbox(roi.numpy().reshape((-1, 4)), roi_cls_loc.numpy().reshape((-1, 4)))
        cls_bbox = torch.from_numpy(cls_bbox).view(-1, (CLASSES + 1) * 4)
        cls_bbox[:, 0::2] = cls_bbox[:, 0::2].clamp(min=0, max=size[0])
        cls_bbox[:, 1::2] = cls_bbox[:, 1::2].clamp(min=0, max=size[1])
        prob = F.softmax(roi_scores, dim=1).numpy()
        return self.suppress(cls_bbox.numpy(), prob)


def fast_rcnn_loc_loss(pred_loc, gt_loc, gt_label, sigma):
    in_weight = torch.zeros(gt_loc.shape)
    in_weight[(gt_label > 0).view(-1, 1).expand_as(in_weight)] = 1
    sigma2 = sigma**2
    diff = in_weight * (pred_loc - gt_loc)
    abs_diff = diff.abs()
    flag = (abs_diff.data < (1.0 / sigma2)).float()
    loss = (flag * (sigma2 / 2.0) * (diff**2) + (1 - flag) * (abs_diff - 0.5 / sigma2)).sum()
    return loss / (gt_label >= 0).sum().float()  # ignored ones have label -1


def build():
    return FasterRCNN()


def inputs(seed):
    """An image with some boxes and their labels; the images are of different sizes."""
    chance = np.random.RandomState(seed)
    sizes = ((128, 160), (160, 128), (160, 160))
    while True:
        H, W = sizes[chance.randint(len(sizes))]
        count = chance.randint(1, 4)
        corner = chance.rand(count, 2) * (H / 2, W / 2)
        extent = 32 + chance.rand(count, 2) * (H / 2 - 32, W / 2 - 32)
        bbox = np.concatenate((corner, corner + extent), axis=1).astype(np.float32)
        yield torch.from_numpy(chance.randn(1, 3, H, W).astype(np.float32)), bbox, chance.randint(0, CLASSES, count)


@torch.no_grad()
def infer(model, batch):
    img, _, _ = batch
    model.eval()
    return model.predict(img)


def optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, weight_decay=5e-4)


def train(model, optim, batch):
    img, bbox, label = batch
    model.train()
    img_size = img.shape[2:]
    features = model.extractor(img)
    rpn_locs, rpn_scores, rois, roi_indices, anchor = model.rpn(features, img_size)
    sample_roi, gt_roi_loc, gt_roi_label = model.proposal_target_creator(rois, bbox, label)
    roi_cls_loc, roi_score = model.head(features, sample_roi, np.zeros(len(sample_roi), dtype=np.int32))

    gt_rpn_loc, gt_rpn_label = (torch.from_numpy(a) for a in model.anchor_target_creator(bbox, anchor, img_size))
    rpn_loc_loss = fast_rcnn_loc_loss(rpn_locs[0], gt_rpn_loc, gt_rpn_label, sigma=3.0)
    rpn_cls_loss = F.cross_entropy(rpn_scores[0], gt_rpn_label, ignore_index=-1)

    n_sample = roi_cls_loc.shape[0]
    gt_roi_label = torch.from_numpy(gt_roi_label).long()
    roi_loc = roi_cls_loc.view(n_sample, -1, 4)[torch.arange(0, n_sample).long(), gt_roi_label]
    roi_loc_loss = fast_rcnn_loc_loss(roi_loc.contiguous(), torch.from_numpy(gt_roi_loc), gt_roi_label, sigma=1.0)
    roi_cls_loss = F.cross_entropy(roi_score, gt_roi_label)

    losses = [rpn_loc_loss, rpn_cls_loss, roi_loc_loss, roi_cls_loss]
    total = sum(losses)
    optim.zero_grad()
    total.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 10.0)
    optim.step()
    return [loss.item() for loss in losses]


def main():
    torch.manual_seed(0)
    np.random.seed(0)
    model = build()
    optim = optimizer(model)
    for step, batch in zip(range(5), inputs(0)):
        rpn_loc, rpn_cls, roi_loc, roi_cls = train(model, optim, batch)
        print(f"step {step}: rpn_loc {rpn_loc:.4f} rpn_cls {rpn_cls:.4f} roi_loc {roi_loc:.4f} roi_cls {roi_cls:.4f}")
    bbox, label, score = infer(model, batch)
    print(f"{len(bbox)} boxes; the best: {bbox[score.argmax()].round(1)}, class {label[score.argmax()]}")


if __name__ == "__main__":
    main()
