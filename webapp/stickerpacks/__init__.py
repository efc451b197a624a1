"""`/v1/stickerpacks`: packs of stickers, kept for the programs that ask for them."""
