"""Showing alignments and results: HTML, images, terminal tables."""

from carot.reporting.demo_report import demo_html, demo_table
from carot.reporting.heatmap import heatmap_html, heatmap_image, heatmap_terminal

__all__ = ["demo_html", "demo_table", "heatmap_html", "heatmap_image", "heatmap_terminal"]
