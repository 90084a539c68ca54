"""The shelves of the made-up supermarket `grocer`: products, what replaces what, what goes together.

The two tables are text, because a person should be able to read and change them; `catalogue` turns
them into a structure once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from contradpp.errors import DataError

# A line without indent is a category. Below it stand its needs: how often they are wanted (5 most often),
# then each need's name and, after a colon, the products that meet it and so replace each other, the most
# popular first. A need without a colon is a product that nothing replaces.
SHELVES = """
fruit
 5 banana: bananas | organic bananas
 4 apple: gala apples | braeburn apples | granny smith apples | organic apples
 3 orange: oranges | clementines
 3 grape: white grapes | red grapes
 3 berry: strawberries | blueberries | raspberries
 2 lemons; limes; avocados; conference pears
 1 honeydew melon; pineapple; kiwis
vegetables
 5 tomato: vine tomatoes | cherry tomatoes | organic tomatoes
 4 onion: yellow onions | red onions
 4 potato: potatoes | new potatoes | sweet potatoes
 4 carrot: carrots | organic carrots
 4 cucumber
 3 lettuce: romaine lettuce | iceberg lettuce | rocket salad
 3 pepper: red peppers | mixed peppers
 3 garlic
 3 broccoli: broccoli | cauliflower
 2 mushroom: chestnut mushrooms | white mushrooms; courgettes; spring onions; fresh basil
 1 aubergine; fresh coriander; fresh ginger; leeks
dairy and eggs
 5 milk: whole milk (Dairy Farm) | semi-skimmed milk (Dairy Farm) | whole milk (Green Valley) |
     milk (Basics) | organic milk | oat drink
 4 egg: free-range eggs | eggs (Basics) | organic eggs
 4 butter: salted butter | unsalted butter | butter (Basics) | margarine
 4 yoghurt: natural yoghurt | greek yoghurt | strawberry yoghurt | organic yoghurt
 4 sliced cheese: cheddar | gouda | emmental
 3 hard cheese: parmesan | grated cheese
 3 cream: double cream | cooking cream | sour cream
 2 mozzarella: mozzarella | buffalo mozzarella; cream cheese; feta
 1 brie; chocolate pudding
bakery
 5 bread: white sliced bread | wholemeal bread | sourdough loaf | bread (Basics)
 3 roll: bread rolls | baguette | ciabatta
 2 butter croissants; burger buns; hot dog rolls; tortilla: flour tortillas | corn tortillas | taco shells
 1 pitta bread; plain bagels; cake: carrot cake | chocolate cake
pasta and rice
 4 pasta: spaghetti | penne | fusilli | tagliatelle | whole wheat spaghetti | pasta (Basics)
 3 rice: basmati rice | long grain rice | risotto rice | rice (Basics)
 1 lasagne sheets; noodle: egg noodles | rice noodles; couscous
sauces and tins
 4 pasta sauce: tomato sauce | arrabbiata sauce | tomato sauce with basil | tomato sauce (Basics)
 3 chopped tomatoes
 2 green pesto; ketchup; mayonnaise; bean: kidney beans | black beans; baked beans
 2 chickpeas; tuna in oil; coconut milk; soy sauce
 1 dijon mustard; salsa; curry paste: red curry paste | tikka masala paste
 1 sweetcorn; black olives; tomato soup; barbecue sauce; hummus
meat
 4 chicken: chicken breasts | chicken thighs | whole chicken | organic chicken
 4 minced meat: minced beef | minced beef (Basics) | vegetarian mince
 3 ham: cooked ham | prosciutto
 2 smoked bacon; sausage: pork sausages | bratwurst | hot dog sausages
 2 burger: beef burgers | veggie burgers; steak: sirloin steak | pork chops
 1 salami
fish
 2 salmon: salmon fillets | cod fillets
 1 smoked salmon; prawns; fish fingers: fish fingers (Captain Nils) | fish fingers (Basics)
frozen
 2 frozen pizza: frozen margherita pizza | frozen salami pizza | frozen pizza (Basics)
 2 garden peas; oven chips; ice cream: vanilla ice cream | chocolate ice cream
 1 frozen berries; puff pastry
breakfast
 3 cereal: corn flakes | granola | muesli | chocolate cereal
 2 rolled oats; jam: strawberry jam | jam (Basics); clear honey; spread: hazelnut spread | peanut butter
 1 maple syrup; pancake mix
baking
 3 flour: plain flour | flour (Basics)
 3 sugar: white sugar | brown sugar | icing sugar
 2 baking powder
 1 vanilla extract; dry yeast; baking chocolate: dark baking chocolate | cocoa powder
 1 ground almonds; paper cake cases
spices and oil
 3 olive oil: olive oil | extra virgin olive oil
 2 sunflower oil; sea salt; black pepper; vinegar: balsamic vinegar | white wine vinegar
 1 dried oregano; curry powder; cumin; paprika; cinnamon; taco seasoning
 1 stock: vegetable stock cubes | chicken stock cubes
snacks
 4 crisps: salted crisps | paprika crisps | crisps (Basics)
 2 nut: roasted peanuts | mixed nuts; tortilla chips; popcorn: salted popcorn | sweet popcorn
 1 salt crackers; guacamole
sweets
 4 chocolate bar: milk chocolate | dark chocolate | hazelnut chocolate
 3 biscuit: butter biscuits | chocolate cookies
 2 gums: wine gums | gummy bears
 1 peppermints; marshmallows
soft drinks
 4 water: still water | sparkling water | water (Basics)
 4 cola: cola (Red Star) | cola (Blue Moon) | cola zero (Red Star) | cola (Basics)
 3 juice: orange juice | apple juice | orange juice (Basics)
 2 lemonade
 1 tonic water; energy drink
coffee and tea
 4 coffee: ground coffee (Roma) | ground coffee (Altura) | coffee beans (Roma) | instant coffee |
     organic coffee
 2 tea: black tea | green tea | peppermint tea; coffee filters
 1 sweetener; hot chocolate powder
beer and wine
 3 beer: lager (Northern) | pilsner (Old Bridge) | lager (Basics) | pale ale
 3 red wine: red wine (Rioja) | red wine (Chianti)
 2 white wine: white wine (Riesling) | white wine (Pinot Grigio)
 1 sparkling wine: prosecco | champagne; gin
baby
 2 nappy: nappies (Softy) size 3 | nappies (Softy) size 4 | nappies (Basics) size 4
 2 baby wipes: baby wipes (Softy) | baby wipes (Basics)
 1 baby food: carrot baby food | apple baby food | organic baby porridge
 1 formula: infant formula (Bebo) | infant formula (Lacta); baby lotion
pets
 2 cat food: wet cat food (Felix & Co) | dry cat food (Felix & Co)
 1 cat litter: clumping cat litter | cat litter (Basics); cat treats
 1 dog food: dry dog food (Rex) | tinned dog food (Rex); dog treats; dog waste bags
cleaning
 3 detergent: washing liquid (Brisk) | washing powder (Brisk) | washing liquid (Basics)
 2 fabric softener (Brisk); washing-up liquid (Lemona)
 2 dishwasher: dishwasher tablets (Sparkle) | dishwasher tablets (Basics)
 1 all-purpose cleaner (Lemona); bleach; sponges
household
 4 toilet paper: toilet paper (Cloud) | toilet paper (Basics)
 3 kitchen roll: kitchen roll (Cloud) | kitchen roll (Basics)
 2 bin bags
 1 foil: aluminium foil | baking paper; tissues; charcoal; batteries
 1 candle: tea lights | birthday candles; paper napkins; paper plates
body care
 2 toothpaste: toothpaste (Blanx) | toothpaste (Basics); shampoo: shampoo (Silka) | shampoo (Basics)
 2 soap: hand soap | shower gel
 1 toothbrush; deodorant; razor blades; shaving foam; sun cream
"""

# A mission is a reason to go shopping: how frequent it is, then for each product or need the chance, in
# percent, that the mission puts it into the basket. A product that stands here by its own name is also
# the one that is then taken from the shelf, rather than another that meets the same need.
MISSIONS = """
 9 spaghetti dinner = spaghetti 90, tomato sauce 75, parmesan 70, minced beef 35, garlic 25, red wine 25,
     fresh basil 20, olive oil 10
 5 pasta with pesto = pasta 90, green pesto 80, parmesan 45, cherry tomatoes 35, white wine 15
 3 lasagne = lasagne sheets 95, minced beef 80, chopped tomatoes 75, mozzarella 55, onion 40, carrot 25,
     red wine 20
 3 risotto = risotto rice 95, parmesan 65, mushroom 55, vegetable stock cubes 50, white wine 45, onion 40
 4 homemade pizza = dry yeast 70, plain flour 60, mozzarella 85, chopped tomatoes 65, dried oregano 35,
     salami 40, black olives 30
 3 caprese = buffalo mozzarella 75, vine tomatoes 85, fresh basil 75, balsamic vinegar 35, extra virgin
     olive oil 35, ciabatta 40
 5 taco night = tortilla 90, taco seasoning 60, minced beef 65, salsa 55, kidney beans 45, guacamole 35,
     sour cream 45, sweetcorn 30, limes 25, iceberg lettuce 30
 4 curry = curry paste 75, coconut milk 75, chicken breasts 65, basmati rice 65, fresh coriander 40, fresh
     ginger 35, onion 35, limes 20
 3 stir-fry = noodle 80, soy sauce 65, fresh ginger 40, spring onions 50, mixed peppers 55, chicken
     breasts 40, prawns 30, broccoli 35
 3 chilli = kidney beans 85, minced beef 80, chopped tomatoes 75, cumin 40, long grain rice 40, red
     peppers 35, sour cream 30
 5 salad = romaine lettuce 75, cucumber 70, cherry tomatoes 65, feta 50, black olives 35, balsamic vinegar
     30, avocados 30, extra virgin olive oil 25
 2 meze = hummus 85, pitta bread 80, feta 50, black olives 45, cucumber 35, aubergine 25, chickpeas 20
 6 barbecue = beef burgers 60, burger buns 60, bratwurst 55, charcoal 50, ketchup 40, beer 55, barbecue
     sauce 35, steak 35, dijon mustard 25, salted crisps 25
 2 hot dogs = hot dog sausages 90, hot dog rolls 90, ketchup 50, dijon mustard 45, cola 35
 4 sunday roast = whole chicken 70, potatoes 70, carrot 60, broccoli 45, chicken stock cubes 25, leeks 20,
     red wine 20
 3 fish supper = salmon 80, lemons 60, new potatoes 45, white wine 35, courgettes 25, butter 20
 3 children's tea = fish fingers 70, oven chips 65, garden peas 50, ketchup 45, chocolate pudding 35
 7 weekend breakfast = butter croissants 50, free-range eggs 60, orange juice 55, smoked bacon 40,
     strawberry jam 35, bread rolls 45, coffee 30
 5 muesli breakfast = muesli 50, yoghurt 60, berry 45, rolled oats 35, clear honey 30, banana 40, milk 35
 3 pancakes = pancake mix 50, maple syrup 75, egg 50, milk 45, blueberries 40, hazelnut spread 30, lemons
     15
 2 bagel brunch = plain bagels 90, cream cheese 80, smoked salmon 70, avocados 35, prosecco 25
 5 baking = plain flour 75, white sugar 65, unsalted butter 60, egg 60, baking powder 55, vanilla extract
     35, baking chocolate 40, ground almonds 25, icing sugar 20, paper cake cases 25
 4 sandwiches = bread 75, cooked ham 60, sliced cheese 60, butter 35, iceberg lettuce 25, mayonnaise 25,
     cucumber 20
 5 film night = salted popcorn 45, crisps 60, cola 55, tortilla chips 40, salsa 25, chocolate bar 40, gums
     30, ice cream 30
 4 frozen pizza evening = frozen pizza 95, cola 40, beer 35, ice cream 30
 3 birthday = birthday candles 55, cake 55, lemonade 45, paper napkins 45, paper plates 45, crisps 40,
     marshmallows 30, gums 40, sparkling wine 20
 3 drinks with friends = gin 55, tonic water 60, limes 40, prosecco 40, nut 45, crisps 35, brie 25, grape
     25
 3 cheese and wine = brie 65, red wine 60, red grapes 45, baguette 55, salt crackers 35, prosciutto 30
 4 coffee corner = coffee 85, coffee filters 55, milk 45, sugar 25, biscuit 40, sweetener 15
 4 tea time = tea 80, biscuit 60, lemons 20, clear honey 25, cake 20
 4 baby = nappy 80, baby wipes 70, baby food 60, formula 40, baby lotion 25
 4 cat owner = cat food 90, cat litter 60, cat treats 40
 3 dog owner = dog food 90, dog treats 50, dog waste bags 45
 4 laundry and cleaning = detergent 65, fabric softener (Brisk) 45, washing-up liquid (Lemona) 40,
     dishwasher 35, all-purpose cleaner (Lemona) 45, bleach 25, sponges 40, bin bags 35
 4 paper and bin bags = toilet paper 80, kitchen roll 60, tissues 40, bin bags 35, foil 25
 4 body care = shampoo 60, toothpaste 55, soap 50, toothbrush 35, deodorant 40, razor blades 25, shaving
     foam 25, sun cream 10
 6 fruit bowl = banana 70, apple 65, grape 45, orange 40, conference pears 30, kiwis 25, berry 30,
     pineapple 15
 6 lunch on the go = energy drink 25, still water 55, bread rolls 45, chocolate bar 35, peppermints 25,
     salted crisps 25
"""


@dataclass(frozen=True)
class Need:
    """Something a customer wants, and the products that meet it, the most popular first."""

    category: str
    popularity: int
    products: tuple[str, ...]


@dataclass(frozen=True)
class Mission:
    """A reason to go shopping: chances by need, and the products that it takes by name."""

    name: str
    frequency: int
    chances: dict[int, float]
    favourites: tuple[str, ...]


@dataclass(frozen=True)
class Catalogue:
    """The supermarket: needs in the order of the shelves, and missions."""

    needs: tuple[Need, ...]
    missions: tuple[Mission, ...]

    @property
    def products(self) -> tuple[str, ...]:
        """All products, in the order of the shelves."""
        return tuple(product for need in self.needs for product in need.products)


@cache
def catalogue() -> Catalogue:
    """The supermarket that the two tables describe."""
    needs: list[Need] = []
    by_name: dict[str, int] = {}
    category = ""
    for line in _logical_lines(SHELVES):
        if not line.startswith(" "):
            category = line
            continue
        popularity, _, entries = line.strip().partition(" ")
        for entry in entries.split(";"):
            name, colon, members = entry.strip().partition(":")
            products = tuple(product.strip() for product in members.split("|")) if colon else (name,)
            by_name[name] = len(needs)
            needs.append(Need(category, int(popularity), products))
    by_product = {product: number for number, need in enumerate(needs) for product in need.products}
    missions = [_mission(line, by_name, by_product) for line in _logical_lines(MISSIONS)]
    return Catalogue(tuple(needs), tuple(missions))


def _logical_lines(table: str) -> list[str]:
    """The lines of a table, each with the more deeply indented lines that continue it."""
    return re.sub(r"\n {2,}", " ", table).strip("\n").split("\n")


def _mission(line: str, needs: dict[str, int], by_product: dict[str, int]) -> Mission:
    head, _, body = line.strip().partition(" = ")
    frequency, _, name = head.partition(" ")
    chances: dict[int, float] = {}
    favourites = []
    for entry in body.split(","):
        wanted, _, percent = entry.strip().rpartition(" ")
        if wanted in by_product:
            favourites.append(wanted)
        elif wanted not in needs:
            raise DataError(f"mission {name!r} wants {wanted!r}, which no shelf has")
        chances[by_product[wanted] if wanted in by_product else needs[wanted]] = int(percent) / 100
    return Mission(name, int(frequency), chances, tuple(favourites))
